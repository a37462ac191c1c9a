"""Backends: each reads and writes one kind of machine setting; `registry` finds them by name."""
