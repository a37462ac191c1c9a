"""Commands that act on machines, or predict the effect."""
