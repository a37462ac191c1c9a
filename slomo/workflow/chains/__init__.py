"""Verbs for service chains: simulate, run on this host, place on NUMA nodes and check, tabulate resource needs."""
