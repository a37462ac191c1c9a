"""Act on a machine: processes, CPUs, control groups, resctrl, pqos, locks; and record changes (the journal).

In: knobs (settings of the machine) and their intended values, as texts. Out: changed knobs, and a `Receipt` by which
they are restored; receipts can be undone in any order. Begin with `knobs` and `ledger`. `testbed/host` (measuring) and
`enforce` (plans) use the same drivers and journal.
"""
