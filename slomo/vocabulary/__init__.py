"""The basic types: metrics (counters), workloads, machines, network functions, co-locations.

In: what people write (names, texts, YAML). Out: immutable values with units and ranges checked. Begin at `metrics`, the
only truth for names, units and rules of composition.
"""
