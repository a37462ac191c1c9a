"""Trained parts of an NF's model: its response to competitors, running neighbours, load and accelerators."""
