"""One cluster kept over many requests: admit, remove, seat, move, persist."""
