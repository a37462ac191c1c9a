"""The service room; import its files."""
