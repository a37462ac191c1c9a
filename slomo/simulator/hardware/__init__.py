"""Caches, memory, devices, accelerators."""
