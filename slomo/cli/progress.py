"""Announce on stderr slow steps that come before any measurement."""

import functools

from slomo.cli.output import note


def announce_compilation() -> None:
    """Print one line on stderr before the simulator is compiled."""
    from slomo.simulator.first_compile import on_first_compile

    # once: campaigns simulate in several threads, and any of them may be the first
    on_first_compile(functools.cache(lambda line: note(f"note: {line}")))
