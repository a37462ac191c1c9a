"""All NFs of a server solved together: pressures, rates, and the fixed point between them."""
