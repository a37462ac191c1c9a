"""Backends, each of which reads and writes one kind of machine setting; `registry` finds a backend by name."""
