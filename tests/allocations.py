"""Made-up responses over cache ways, throttles and memory nodes, for models that tests did not profile over them."""

from dataclasses import replace

from slomo.models.library import ModelLibrary
from slomo.models.responses.memory_traffic import MemoryTraffic
from slomo.models.responses.partition import AllocationModel, PartitionResponse
from slomo.vocabulary.machine import load_machine

MEMORY = MemoryTraffic((80.0, 90.0, 140.0, 300.0), (0.0, 8.0, 30.0, 60.0))
#: Waits and traffic with the fewest ways, as shares of those with one.
LESS = (1.0, 0.8, 0.5, 0.2, 0.05)


def allocation(workload: str, machine_name: str, solo_mpps: float, waits: float, moved: float) -> AllocationModel:
    """Return what an NF does over ways and throttles: it waits and moves less the more ways it has."""
    machine = load_machine(machine_name)
    grid = (1.0, 2.0, 4.0, 8.0, float(machine.llc_ways))
    busy = tuple(1.0 / solo_mpps - waits * LESS[-1] * 0.08 for _ in grid)
    response = PartitionResponse(
        workload,
        solo_mpps,
        grid,
        busy,
        tuple(waits * share for share in LESS),
        tuple(moved * share for share in LESS),
        tuple(0.3 / solo_mpps * share for share in LESS),
        ((10.0, 1.0), (50.0, 0.2), (100.0, 0.0)),
        80.0,
        0.05,
        128.0,
    )
    errors = tuple(number / 1000.0 for number in range(-20, 20))
    return AllocationModel(response, MEMORY, machine.llc_ways, 60.0, errors, tuple(2.0 * error for error in errors))


def with_allocations(library: ModelLibrary) -> ModelLibrary:
    """Return models that know ways, all in the same way."""
    return ModelLibrary(
        replace(model, allocation=allocation(key, machine, model.solo_mpps, 0.5, 400.0))
        for (machine, key), model in library.items()
    )
