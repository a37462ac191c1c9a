"""Control loops: observe a machine, decide on settings, apply them if they differ, and record them for undoing."""
