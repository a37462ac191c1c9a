"""Functions behind slomo's main commands (profile, train, predict, ...); import them from these files or `slomo`.

In: names, paths and values as people give them. Out: what the rooms below return. Begin at `predict`, `profile`,
`train`, `evaluate` or `place`; `acting/` has verbs that act on a machine, `chains/` those of service chains.
"""
