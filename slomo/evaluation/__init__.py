"""Comparison of predictions with measured tables; import its files."""
