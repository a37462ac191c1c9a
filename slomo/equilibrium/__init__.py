"""Predict all NFs of a server together: find pressures and throughputs that agree with each other (the equilibrium)."""
