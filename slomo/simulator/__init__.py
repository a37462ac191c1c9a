"""The simulator room; import its files."""
