"""Manage one cluster over time: admit, remove and move requests; save and restore what runs where."""
