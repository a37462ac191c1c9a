"""The line-level simulator; import its files."""
