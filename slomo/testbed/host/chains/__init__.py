"""Chains of network functions on this machine: processes, rings between them, control groups over them."""
