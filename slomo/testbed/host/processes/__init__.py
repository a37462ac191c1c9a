"""Processes and tools that are always cleaned up."""
