"""State that survives: SQLite with one writer."""
