"""The prediction room; import its files."""
