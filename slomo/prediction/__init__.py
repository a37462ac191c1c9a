"""Questions and predictions; import its files."""
