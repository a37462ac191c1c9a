"""A resctrl file system as the kernel behaves, in Python: for tests, and behind FUSE for the real pqos."""
