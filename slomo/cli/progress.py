"""Announce on stderr slow steps that come before any measurement."""

from slomo.cli.output import note


def announce_compilation() -> None:
    """Print one line on stderr before the simulator is compiled."""
    from slomo.simulator.first_compile import on_first_compile

    told: set[str] = set()

    def tell(line: str) -> None:
        if line not in told:  # campaigns simulate in several threads, and any of them may be the first
            told.add(line)
            note(f"note: {line}")

    on_first_compile(tell)
