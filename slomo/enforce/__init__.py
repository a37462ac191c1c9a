"""The enforce room; import its files."""
