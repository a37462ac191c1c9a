"""What the service keeps on disk, in SQLite with one writer."""
