"""The cli room; import its files."""
