"""Words on stderr about what takes long before anything is measured."""

from slomo.cli.output import note


def announce_compilation() -> None:
    """Say on stderr, in one line, when the simulator is about to be compiled."""
    from slomo.simulator.first_compile import on_first_compile

    told: set[str] = set()

    def tell(line: str) -> None:
        if line not in told:  # campaigns simulate in several threads, each of which may be the first
            told.add(line)
            note(f"note: {line}")

    on_first_compile(tell)
