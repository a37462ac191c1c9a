"""Simulator of every cache-line access, against which predictions are tested; import its modules, not the package.

In: a `Machine`, tenants with their masks, throttles and loads, a seed. Out: throughput, latency and every metric per
core and socket, with standard errors. Begin with `engine`; `sharing/` simulates chains and cores shared by several NFs.
"""
