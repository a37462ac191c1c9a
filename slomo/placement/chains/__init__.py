"""Place service chains on the NUMA nodes of servers."""
