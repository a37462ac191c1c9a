"""Functions that act on a machine or predict such acts; the command line and Python both call them."""
