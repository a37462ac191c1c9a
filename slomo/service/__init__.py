"""The HTTP service for orchestrators and people, over prediction and placement."""
