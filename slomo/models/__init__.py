"""The models room; import its files."""
