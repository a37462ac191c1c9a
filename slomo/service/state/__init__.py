"""Durable state of the service, in SQLite with one writer."""
