"""The simulated hardware: caches, memory, network card, accelerators."""
