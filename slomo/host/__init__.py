"""Act on a machine: processes, CPUs, control groups, resctrl, pqos, locks; and record changes (the journal).

Measuring on a host is in `slomo/testbed/host/`; enforcement plans are in `slomo/enforce/`. Both use these drivers, and
every change by either is an entry of the machine's journal.
"""
