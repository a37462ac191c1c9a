"""The compose room; import its files."""
