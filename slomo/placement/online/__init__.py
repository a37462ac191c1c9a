"""One cluster over time: admit, remove, move, persist."""
