"""Figures and reports; import its files."""
