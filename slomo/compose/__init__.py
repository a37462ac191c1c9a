"""Composition of contentiousness and of resources; import its files."""
