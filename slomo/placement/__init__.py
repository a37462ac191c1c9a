"""The placement room; import its files."""
