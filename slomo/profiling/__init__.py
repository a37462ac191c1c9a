"""The profiling room; import its files."""
