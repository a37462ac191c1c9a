"""State of the service on disk, in SQLite with one writer."""
