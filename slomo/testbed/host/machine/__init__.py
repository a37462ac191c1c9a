"""Properties of the local machine."""
