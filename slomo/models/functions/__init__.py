"""Fitted functions as arrays: trees, smooth and monotone ones."""
