"""Which runs to make."""
