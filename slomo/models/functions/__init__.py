"""Trained functions as plain arrays: trees, smooth ones, monotone ones."""
