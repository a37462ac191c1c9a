"""Trained parts of an NF's model: how it responds to competitors, running neighbours, load and accelerators."""
