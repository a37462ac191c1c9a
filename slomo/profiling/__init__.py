"""Experiment plans and campaigns; import its files."""
