"""Checks of what this host can measure, and of disturbances."""
