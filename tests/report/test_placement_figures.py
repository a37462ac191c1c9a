"""Figures of placement show every run over time once, and the six numbers of a judgement."""

from matplotlib.text import Text

from slomo.placement.online.moves import Move
from slomo.placement.over_time.judgement import Judgement, Violation
from slomo.placement.over_time.reoptimise import Reoptimisation
from slomo.placement.over_time.timeline import Sample, Timeline
from slomo.report.placement_figures import (
    cluster_timeline,
    comparison_page,
    judgement_rows,
    policy_bars,
    timeline_page,
    timeline_rows,
)


def run(planner=""):
    samples = (Sample(0.0, 1, 0, 2, 0), Sample(5.0, 2, 0, 1, 1, 0.5, 0.9), Sample(10.0, 0, 1, 0, 1))
    plan = Reoptimisation(2, 1, 0.1, True, (Move("a", "x", "y"),))
    return Timeline("slomo", planner, samples, ((5.0, plan),) if planner else (), (0.1, 0.2))


def test_timeline_draws_requests_once_and_marks_migrations() -> None:
    """Two runs of the same arrivals are two lines above and one below, of whole numbers; a triangle marks a move."""
    top, bottom = cluster_timeline([run(), run("resq-milp")]).axes
    markers = [line for line in top.lines if line.get_marker() == "v"]

    assert len(bottom.lines) == 1
    assert all(tick == round(tick) for axes in (top, bottom) for tick in axes.get_yticks())
    assert len(top.lines) == 3
    assert [list(line.get_xdata()) for line in markers] == [[5.0]]
    assert "1 move" in bottom.get_legend().get_texts()[1].get_text()


def test_no_text_leaves_the_figure() -> None:
    """Titles and legends end inside the figure, which a phone shows as it is."""
    for figure in (
        cluster_timeline([run(), run("resq-milp")]),
        policy_bars([Judgement("slomo", 4, 3, 2, (), 1.0, 0.5)]),
    ):
        figure.canvas.draw()
        width = figure.bbox.width
        texts = [text for axes in figure.axes for text in axes.findobj(Text)]
        assert all(text.get_window_extent().x1 <= width for text in texts if text.get_text())


def test_pages_begin_with_a_headline() -> None:
    """A page says first how many servers suffice without a broken SLO, or how many are in use on average."""
    kept, tight = (
        Judgement("slomo", 4, 4, 3, (), 1.0, 0.5),
        Judgement("tight", 4, 4, 2, (Violation("a", "lpm", "throughput", 4.0, 3.0, "rack-1"),), 0.9, 0.5),
    )

    assert "servers suffice for 4 requests with all SLOs kept: slomo" in comparison_page([kept, tight])
    assert "of the policies placed 4 requests and kept all SLOs" in comparison_page([tight])
    assert "servers in use on average, with slomo, planned afresh by resq-milp" in timeline_page([run("resq-milp")])


def test_tables_have_all_six_numbers() -> None:
    """Broken SLOs, servers, ANAT, utilisation, moves and decision times are in each row, in that order."""
    judged = Judgement("slomo", 4, 3, 2, (), 0.75, 0.5, 7, (0.1, 0.9))
    headers, (row,) = judgement_rows([judged])

    assert row == ("slomo", "3 of 4", 2, 0.0, 75.0, 50.0, 7, 0.1, 0.9)
    assert len(headers) == len(row)
    headers, (row,) = timeline_rows([run("resq-milp")])
    assert dict(zip(headers, row, strict=True))["SLOs broken, worst [%]"] == 50.0
    assert dict(zip(headers, row, strict=True))["servers, mean"] == 1.5


def test_pages_show_throughput_over_time_where_there_is_any() -> None:
    """A judgement with intervals adds a figure of them."""
    plain = Judgement("slomo", 1, 1, 1, (), 1.0, 0.5)
    timed = Judgement("octans", 1, 1, 1, (), 1.0, 0.5, anat_over_time=(1.0, 0.9))

    assert comparison_page([plain]).count("data:image/svg+xml") == 1
    assert comparison_page([timed]).count("data:image/svg+xml") == 2
