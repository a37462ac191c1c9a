"""Control loops: observe a machine, decide, compare, apply, keep the receipt."""
