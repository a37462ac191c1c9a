"""Functions behind the commands for service chains: simulate, run on this host, place on NUMA nodes, check."""
