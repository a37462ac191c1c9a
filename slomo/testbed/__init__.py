"""The testbed room; import its files."""
