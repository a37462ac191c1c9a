"""The records room; import its files."""
