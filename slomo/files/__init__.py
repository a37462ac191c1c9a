"""Files: atomic writes, and locks that are released when their holder dies."""
