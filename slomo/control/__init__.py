"""Control loops: observe a machine, decide on settings, apply them if they differ, and record them for undoing.

In: readings of a plant (simulated in `plants`, real in `host_plant`) and promises. Out: a `ControlDecision` per round,
that is an `EnforcementPlan`. Begin at `loop`; a controller is one file and has no side effects.
"""
