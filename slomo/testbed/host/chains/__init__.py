"""Run chains of network functions on this machine: processes, the rings between them, and their control groups."""
