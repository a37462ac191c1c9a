"""Definition of the SQLite tables of the service's state."""

import sqlite3

from slomo.errors import ConfigurationError

#: Present schema version (`PRAGMA user_version`).
VERSION = 7
#: Tables that version 7 added to version 6.
_ADDED = """
    CREATE TABLE plans (node TEXT PRIMARY KEY, at TEXT NOT NULL, document TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE history (
        number INTEGER PRIMARY KEY AUTOINCREMENT, at_s REAL NOT NULL, document TEXT NOT NULL);
"""
_TABLES = """
    CREATE TABLE cluster (
        position INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, document TEXT NOT NULL);
    CREATE TABLE closed (server TEXT PRIMARY KEY, why TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE placed (
        position INTEGER PRIMARY KEY AUTOINCREMENT, request TEXT NOT NULL UNIQUE, entry TEXT NOT NULL);
    CREATE TABLE revision (only INTEGER PRIMARY KEY CHECK (only = 1), number INTEGER NOT NULL);
    INSERT INTO revision VALUES (1, 0);
    CREATE TABLE decisions (
        number INTEGER PRIMARY KEY AUTOINCREMENT, at TEXT NOT NULL, request TEXT NOT NULL, verb TEXT NOT NULL,
        fingerprint TEXT NOT NULL, document TEXT NOT NULL);
    CREATE INDEX decisions_by_request ON decisions (request, number);
    CREATE TABLE receipts (
        number INTEGER PRIMARY KEY AUTOINCREMENT, at TEXT NOT NULL, verb TEXT NOT NULL, caller TEXT NOT NULL,
        before TEXT NOT NULL, after TEXT NOT NULL, undone_by INTEGER);
    CREATE TABLE jobs (
        number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, at TEXT NOT NULL, kind TEXT NOT NULL,
        state TEXT NOT NULL, done REAL NOT NULL, message TEXT NOT NULL, result TEXT, asked TEXT);
    CREATE TABLE observations (
        number INTEGER PRIMARY KEY AUTOINCREMENT, at TEXT NOT NULL, machine TEXT NOT NULL, target TEXT NOT NULL,
        document TEXT NOT NULL, predicted_mpps REAL, throughput_mpps REAL NOT NULL,
        fingerprint TEXT NOT NULL DEFAULT '');
    CREATE TABLE idempotency (
        position INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE, digest TEXT NOT NULL,
        status INTEGER NOT NULL, headers TEXT NOT NULL, body BLOB NOT NULL);
    CREATE TABLE audit (
        number INTEGER PRIMARY KEY AUTOINCREMENT, at TEXT NOT NULL, caller TEXT NOT NULL, verb TEXT NOT NULL,
        request_id TEXT NOT NULL, status INTEGER NOT NULL);
"""


def make_tables(connection: sqlite3.Connection) -> None:
    """Create all tables in an empty file, or the tables that a file of version 6 lacks; all of them or none.

    Raises ConfigurationError for a file of any other version.
    """
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if version not in (0, 6, VERSION):
        raise ConfigurationError(
            f"the state is of version {version}, this slomo reads version {VERSION}",
            hint="start the slomo that wrote it, or another --state",
        )
    if version != VERSION:
        tables = _ADDED if version else _TABLES + _ADDED
        connection.executescript(f"BEGIN IMMEDIATE;{tables}PRAGMA user_version = {VERSION};COMMIT;")
