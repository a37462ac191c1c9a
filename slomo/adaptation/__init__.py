"""Derive models for traffic, settings and machines that were not profiled.

In: the profiles of one NF (`NFModel`), and the workload or machine asked about. Out: one model for it, with the reasons
why its answers are extrapolated; UnsupportedPredictionError where no profile reaches. Begin at `adapt`, which decides;
`machines` carries a model to another machine.
"""
