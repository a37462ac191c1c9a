"""Act on a machine: processes, CPUs, control groups, resctrl, pqos, locks; and record changes (the journal).

In: knobs and the texts they shall hold. Out: changed knobs, and a `Receipt` that restores them in any order. Begin at
`knobs` and `ledger`. `testbed/host` (measuring) and `enforce` (plans) use the same drivers and journal.
"""
