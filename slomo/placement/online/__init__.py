"""Manage one cluster over time: admit, remove and move requests, and store the placement."""
