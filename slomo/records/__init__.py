"""Measured data: runs, their summaries, where they come from, and datasets of them."""
