"""Fitted models of NFs; import its files."""
