"""The testing room; import its files."""
