"""Fitted parts of a network function's model: sensitivity, latency, accelerators, server response."""
