"""The basic types: metrics (counters), workloads, machines, network functions, co-locations."""
