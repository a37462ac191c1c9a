"""The tables of the state, version by version; a file of an older version is brought up to date when it is opened."""

import sqlite3

from slomo.errors import ConfigurationError

#: What each version adds; the number of entries is the version in force (`PRAGMA user_version`).
MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE cluster (
        position INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, document TEXT NOT NULL);
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
        id TEXT PRIMARY KEY, at TEXT NOT NULL, kind TEXT NOT NULL, state TEXT NOT NULL, done REAL NOT NULL,
        message TEXT NOT NULL, result TEXT) WITHOUT ROWID;
    CREATE TABLE observations (
        number INTEGER PRIMARY KEY AUTOINCREMENT, at TEXT NOT NULL, machine TEXT NOT NULL, target TEXT NOT NULL,
        document TEXT NOT NULL, predicted_mpps REAL, throughput_mpps REAL NOT NULL);
    CREATE TABLE idempotency (
        position INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE, digest TEXT NOT NULL,
        status INTEGER NOT NULL, headers TEXT NOT NULL, body BLOB NOT NULL);
    """,
    """
    CREATE TABLE audit (
        number INTEGER PRIMARY KEY AUTOINCREMENT, at TEXT NOT NULL, caller TEXT NOT NULL, verb TEXT NOT NULL,
        request_id TEXT NOT NULL, status INTEGER NOT NULL);
    """,
    """
    CREATE TABLE numbered_jobs (
        number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, at TEXT NOT NULL, kind TEXT NOT NULL,
        state TEXT NOT NULL, done REAL NOT NULL, message TEXT NOT NULL, result TEXT);
    INSERT INTO numbered_jobs (id, at, kind, state, done, message, result) SELECT * FROM jobs ORDER BY at;
    DROP TABLE jobs;
    ALTER TABLE numbered_jobs RENAME TO jobs;
    """,
    """
    ALTER TABLE jobs ADD COLUMN asked TEXT;
    """,
    """
    CREATE TABLE closed (server TEXT PRIMARY KEY, why TEXT NOT NULL) WITHOUT ROWID;
    """,
    """
    ALTER TABLE observations ADD COLUMN fingerprint TEXT NOT NULL DEFAULT '';
    """,
)
VERSION = len(MIGRATIONS)


def migrate(connection: sqlite3.Connection) -> int:
    """Bring a state file up to date; return the version it had.

    Raises
    ------
    ConfigurationError
        For a file that a newer slomo wrote.

    Examples
    --------
    >>> migrate(sqlite3.connect(":memory:", isolation_level=None))
    0
    """
    had = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if had > VERSION:
        raise ConfigurationError(
            f"the state is of version {had}, this slomo knows {VERSION}",
            hint="start the newer slomo, or another --state",
        )
    for number in range(had, VERSION):
        connection.execute("BEGIN IMMEDIATE")
        try:
            for statement in MIGRATIONS[number].split(";"):
                if statement.strip():
                    connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {number + 1}")
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")
    return had
