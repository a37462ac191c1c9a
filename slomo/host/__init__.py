"""The drivers of a machine, each once: processes, CPUs, control groups, resctrl, pqos, locks and the journal.

What is measured on a host is the testbed's (`slomo/testbed/host/`); what a plan asks for is `slomo/enforce/`'s. Both
act through the drivers here, and every change that either makes is an entry of the machine's journal.
"""
