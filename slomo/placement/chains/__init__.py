"""Service chains on the NUMA nodes of servers."""
