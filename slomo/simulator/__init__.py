"""The simulator of every access to a cache line, against which predictions are tested; import this package's files.

In: a `Machine`, tenants with their masks, throttles and loads, a seed. Out: throughput, latency and every metric per
core and socket, with standard errors. Begin at `engine`; `sharing/` plays chains and shared cores.
"""
