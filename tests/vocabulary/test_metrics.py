"""The table of metrics is complete and consistent with itself."""

import pytest

from slomo.errors import UnknownNameError
from slomo.prediction.explanation import LEVERS
from slomo.vocabulary.metrics import ALIASES, METRICS, Cap, Kind, Metric, Rule, canonical_names, metric

ISSUED = (
    "IPC INST EXEC FREQ AFREQ L3MISS L3MPI L3HIT L3OCC L2MISS L2MPI L2HIT LMB RMB READ WRITE LLCMISSLAT UPI "
    "DDIOOCC PCIEHIT PCIEMISS FELTLLC FELTL3 FELTREAD FELTWRITE"
)


def test_the_vocabulary_has_every_metric_of_the_paper() -> None:
    """SLOMO's candidate metrics, the device-side ones and what reporters feel are all there."""
    assert set(ISSUED.split()) <= set(METRICS)


@pytest.mark.parametrize("item", METRICS.values(), ids=lambda m: m.name)
def test_rules_are_sound(item: Metric) -> None:
    """Amounts add up, ratios never do, weights and quotients name metrics, and somebody can act on the resource."""
    assert item.resource in LEVERS
    if item.kind in {Kind.RATE, Kind.BANDWIDTH, Kind.OCCUPANCY, Kind.FELT}:
        assert item.rule is Rule.SUM
    if item.kind in {Kind.RATIO, Kind.LATENCY}:
        assert item.rule is not Rule.SUM
    if item.rule is Rule.WEIGHTED_MEAN:
        assert item.weight in {*METRICS, "L2REF"}
    if item.rule is Rule.QUOTIENT:
        assert item.weight is not None
        assert all(part in METRICS for part in item.weight.split("/"))
    if item.kind is Kind.OCCUPANCY:
        assert item.cap in {Cap.LLC, Cap.DDIO}


def test_aliases_lead_to_metrics() -> None:
    """CAR and the other second names resolve, in any letter of the table."""
    assert {metric(alias).name for alias in ALIASES} <= set(METRICS)
    assert canonical_names(["WRITE", "CAR", "L2MISS"]) == ("L2MISS", "WRITE")


def test_a_slip_is_met_with_the_nearest_name() -> None:
    """An unknown metric names its neighbour."""
    with pytest.raises(UnknownNameError, match="did you mean 'L3OCC'"):
        metric("L3OC")
