"""The report room; import its files."""
