"""Testbeds: simulators and real machines that run network functions together; import the modules, not the package.

In: a `Colocation` and a seed. Out: a `RunRecord`: the competitors alone, then beside the target. Begin with `base` and
`simulated`. `host/` runs native processes, `champsim/` simulates traces, `replay` returns the runs of a dataset.
"""
