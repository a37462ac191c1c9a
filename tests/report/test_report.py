"""Figures, tables and the self-contained page."""

import re

import numpy as np
import pytest
from matplotlib.text import Text

from slomo.errors import InvalidValueError
from slomo.evaluation.evaluate import evaluate
from slomo.report import figures
from slomo.report.html import Section, render_html, svg_bytes
from slomo.report.sections import headline
from slomo.report.tables import ACCURACY_COLUMNS, Table, accuracy_per_nf_table, accuracy_table, mixes_table

RANDOM = np.random.default_rng(7)


def surface() -> object:
    return figures.sensitivity_surface(
        RANDOM.uniform(0, 90, 50), RANDOM.uniform(0, 20, 50), RANDOM.uniform(0, 30, 50), target="lpm", llc_mib=20
    )


def test_surface_shows_every_complete_point() -> None:
    """Points that lack a value are left out, the others are drawn."""
    figure = figures.sensitivity_surface([1, 2, 3, np.nan], [1, 3, 2, 1], [1, 2, 3, 4], target="lpm")

    assert len(figure.axes[0].collections[-1].get_offsets()) == 3


def test_surface_of_points_on_a_line_is_drawn_without_filling() -> None:
    """A design that varies one knob only still gives a figure."""
    figure = figures.sensitivity_surface([1, 2, 3], [1, 2, 3], [1, 2, 3], target="lpm")

    assert svg_bytes(figure).startswith(b"<?xml")


def test_surface_needs_three_points() -> None:
    """Two points span no surface."""
    with pytest.raises(InvalidValueError, match="3 points"):
        figures.sensitivity_surface([1, 2], [1, 2], [1, 2], target="lpm")


def test_every_axis_names_what_it_shows_and_its_unit() -> None:
    """Axes of numbers carry a unit in brackets."""
    drawn = [
        surface(),
        figures.predicted_against_measured([1, 2], [1, 3], ["a", "b"]),
        figures.error_cdf({"none": [1, 2]}),
    ]
    for figure in drawn:
        assert figure.axes[0].get_xlabel().endswith("]")  # type: ignore[attr-defined]
        assert figure.axes[0].get_ylabel().endswith("]")  # type: ignore[attr-defined]


def test_error_distribution_ends_at_every_prediction() -> None:
    """Each curve climbs to 100 % and names its mean."""
    figure = figures.error_cdf({"good": [1, 2, 3, 2], "bad": [10, 20, np.nan]})
    lines = [line for line in figure.axes[0].lines if "mean" in str(line.get_label())]

    assert [max(line.get_ydata()) for line in lines] == [100.0, 100.0]
    assert "good (mean 2.0 %)" in [line.get_label() for line in lines]


def test_matrix_prints_known_cells_only() -> None:
    """An unknown pair stays blank; it is not zero."""
    figure = figures.pair_matrix([[0.4, np.nan], [12.0, 30.0]], ["a", "b"], ["a", "b"])

    assert [text.get_text() for text in figure.axes[0].texts] == ["0", "12", "30"]


def test_a_small_matrix_is_as_wide_as_its_title() -> None:
    """The title of a matrix with one cell ends inside the figure."""
    figure = figures.pair_matrix([[1.0]], ["a"], ["a"], title="Predicted slowdown beside 7 instances")
    figure.draw_without_rendering()
    texts = [text for text in figure.axes[0].findobj(Text) if text.get_text()]  # type: ignore[attr-defined]

    assert max(text.get_window_extent().x1 for text in texts) <= figure.bbox.x1


def test_same_figure_gives_the_same_bytes() -> None:
    """Reports of the same numbers are equal."""
    assert svg_bytes(figures.error_cdf({"none": [1, 2]})) == svg_bytes(figures.error_cdf({"none": [1, 2]}))


def test_page_needs_nothing_else() -> None:
    """The page holds its figures and asks no other file or server for anything."""
    page = render_html(
        "Report", [Section("Errors", "text", figure=figures.error_cdf({"none": [1, 2]}), alternative="error curves")]
    )

    assert 'src="data:image/svg+xml;base64,' in page
    assert 'alt="error curves"' in page
    assert not re.search(r"(?:src|href)=\"(?!data:)", page)
    assert "http" not in page


def test_page_shows_markup_instead_of_obeying_it() -> None:
    """A network function named like a script runs nowhere."""
    evil = "<script>alert(1)</script>"
    page = render_html(evil, [Section(evil, evil, Table((evil,), ((evil,),), evil))], lead=evil, footer=evil)

    assert "<script" not in page
    assert page.count("&lt;script&gt;") == 10


def test_a_headline_names_error_coverage_and_worst_case(toy_library: object, toy_mixes: object) -> None:
    """The three numbers are those of the evaluation; the worst case is its largest error, with who and why."""
    evaluation = evaluate(toy_library, toy_mixes)  # type: ignore[arg-type]
    model = next(iter(evaluation.models))
    rows = evaluation.to_frame().query("model == @model")
    worst = rows.loc[rows["error_percent"].abs().idxmax()]
    off, hold, extreme = headline(evaluation, model)

    assert (off.value, hold.value) == (
        f"{evaluation.models[model].mape:.1f} %",
        f"{evaluation.models[model].coverage:.0f} %",
    )
    assert extreme.value == f"{worst['error_percent']:+.1f} %"
    assert extreme.meaning == f"worst case: {worst['target']} beside {worst['competitors']}"
    assert "its interval; " in extreme.detail
    assert extreme.meaning in render_html("Report", [], headline=(extreme,))


def test_cells_carry_their_heading_for_narrow_screens() -> None:
    """On a phone a row is a card, so each cell knows its column."""
    page = render_html("Report", [Section("Table", table=Table(("a", "b"), ((1, 2.0),)))])

    assert 'data-head="b">2.00</td>' in page


def test_figures_keep_their_text_and_scroll_before_it_is_too_small() -> None:
    """Text of a figure is text of its SVG; a figure never shrinks below seven tenths."""
    section = Section("Errors", figure=figures.error_cdf({"none": [1, 2]}))

    assert b">none (mean 1.5 %)</text>" in svg_bytes(section.figure)  # type: ignore[arg-type]
    assert section.least_width_px == round(0.7 * 96 * 4.8)


def test_unknown_numbers_are_dashes() -> None:
    """What is not known is not shown as zero."""
    page = render_html("Report", [Section("Table", table=Table(("a", "b"), ((None, float("nan")),)))])

    assert page.count("–</td>") == 2


def test_accuracy_tables_have_the_columns_of_evaluate() -> None:
    """Tables and JSON speak of the same figures."""
    row = dict.fromkeys(ACCURACY_COLUMNS, 1.0)

    assert accuracy_table({"none": row}).rows == (("none", *[1.0] * 6),)
    assert accuracy_per_nf_table({"lpm": {"none": row}}).rows == (("lpm", "none", *[1.0] * 6),)


def test_difference_is_predicted_less_measured() -> None:
    """A prediction above the measurement has a positive difference."""
    table = mixes_table(["lpm"], ["stats"], [10.0], [12.5], verdicts=["supported"])

    assert table.rows == (("lpm", "stats", 12.5, 10.0, 2.5, "supported"),)


def test_section_shows_itself_in_a_notebook() -> None:
    """A section is its own rich display: heading, table and figure."""
    shown = Section("Errors", table=Table(("a",), ((1.5,),)), figure=figures.error_cdf({"none": [1, 2]}))._repr_html_()

    assert "<h2>Errors</h2>" in shown
    assert "1.50</td>" in shown
    assert 'src="data:image/svg+xml;base64,' in shown
