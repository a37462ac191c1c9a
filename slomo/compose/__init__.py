"""Combine the counters of several competitors, and the throughput that several resources allow.

In: `MetricVector` of each competitor, or throughputs by resource. Out: a `Composition`, or shares of a core and of a
port. Begin at `composition`; `operators` has the rule of each metric, `uncertain`, `cores`, `turns` and `ports` the
rest.
"""
