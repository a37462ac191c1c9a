"""Files: written whole or not at all, and locks that die with their holder."""
