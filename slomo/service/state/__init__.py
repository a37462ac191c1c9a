"""Durable state: SQLite with one writer."""
