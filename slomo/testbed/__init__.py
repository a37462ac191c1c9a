"""Testbeds: simulators and real machines on which network functions are run together; import this package's files.

In: a `Colocation` and a seed. Out: a `RunRecord`: the competitors alone, then beside the target. Begin at `base` and
`simulated`; `host/` runs native processes, `champsim/` traces, `replay` a dataset.
"""
