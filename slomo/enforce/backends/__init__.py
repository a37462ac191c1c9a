"""Backends that set a machine's knobs, one file each; `registry` finds them by name."""
