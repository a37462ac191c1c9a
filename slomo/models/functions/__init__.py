"""Trained functions as plain arrays: decision trees, and linear, smooth and monotone functions."""
