"""Facts about the figures and sections of an honest evaluation."""

from types import SimpleNamespace

from slomo.report.evaluation_figures import learning_curves, reliability_diagram
from slomo.report.html import render_html
from slomo.report.sections import learning_section, reliability_section, sources_section


def test_reliability_has_a_line_per_model_and_the_diagonal() -> None:
    """Two models and the diagonal are three lines, in percent."""
    axes = reliability_diagram({"a": {0.5: 0.4, 0.9: 0.8}, "b": {0.5: 0.6}}).axes[0]
    assert len(axes.lines) == 3
    assert list(axes.lines[1].get_ydata()) == [40.0, 80.0]


def test_learning_curves_are_drawn_over_runs() -> None:
    """Each model is a line over its budgets in rising order."""
    axes = learning_curves({"a": {100: 2.0, 10: 8.0}}).axes[0]
    assert list(axes.lines[0].get_xdata()) == [10, 100]
    assert list(axes.lines[0].get_ydata()) == [8.0, 2.0]


def test_sections_make_a_page() -> None:
    """Sources, reliability and learning curves render into one self-contained page."""
    source = {"noise": None, "sensitivity": 1.0, "composition": 2.0, "total": 2.5}
    evaluation = SimpleNamespace(sources={"slomo": source}, reliability={"slomo": {0.9: 0.88}})
    page = render_html(
        "Honest",
        [sources_section(evaluation), reliability_section(evaluation), learning_section({"slomo": {10: 3.0}})],
    )
    assert "Where errors come from" in page
    assert page.count("<img") + page.count("<svg") >= 2
