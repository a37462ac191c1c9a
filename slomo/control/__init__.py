"""Control loops: observe a machine, decide on settings, apply them if they differ, and record them for undoing.

In: readings of a plant (simulated in `plants`, real in `host_plant`) and promises. Out: a `ControlDecision` per round,
which holds an `EnforcementPlan`. Begin with `loop`; each controller is one file and has no side effects.
"""
