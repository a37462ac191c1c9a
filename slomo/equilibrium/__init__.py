"""Every NF of a server at once: pressures, rates and the fixed point between them."""
