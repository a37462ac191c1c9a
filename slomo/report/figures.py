"""The figures of a report: sensitivity surface, predicted against measured, error distribution, pair matrix.

They follow SLOMO (SIGCOMM'20): its Fig. 5 (slowdown over occupancy and access rate), its error comparison with Dobrescu
and Bubble-Up, and the pairwise slowdown tables of ResQ (NSDI'18). Colours are Okabe and Ito's and cividis, both safe
for colour-blind readers; every curve differs in marker or dash too. Slowdowns and errors have the same axes everywhere.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from slomo.errors import InvalidValueError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.tri import Triangulation

#: Okabe and Ito's colours, the darkest first.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7F7F7F")
_MARKERS = "osD^vPX*<>"
_DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
_INK = "#222222"
_SEQUENTIAL = "cividis"
_BANDS_PERCENT = (5.0, 10.0)
#: Upper ends of slowdown and error axes, unless values lie beyond, so that figures can be compared.
_SLOWDOWN_TOP, _ERROR_TOP = 60.0, 30.0
#: Size of a figure [inch]: on a phone of 390 px its text is still 9 px.
SIZE = (4.8, 3.8)
_WIDE = 30.0  # access rates that differ by more than this factor are drawn on a logarithmic axis
_FLAT = 1e-3  # points with less spread than this across their line span no surface


def sensitivity_surface(
    access_rate_m_s: ArrayLike,
    occupancy_mib: ArrayLike,
    slowdown_percent: ArrayLike,
    *,
    target: str,
    llc_mib: float | None = None,
    ax: "Axes | None" = None,
) -> "Figure":
    """Draw a target's slowdown over its competitors' cache access rate and occupancy.

    Raises InvalidValueError with fewer than three points that have all three values.

    `access_rate_m_s`, shape (n,): competitors' L2MISS [M/s]. `occupancy_mib`, shape (n,): competitors' L3OCC [MiB].
    `slowdown_percent`, shape (n,): slowdown of the target [%]. `target`: name for the title. `llc_mib`: size of the
    last-level cache [MiB], drawn as a line. `ax`: where to draw; a figure of its own by default.
    """
    columns = (access_rate_m_s, occupancy_mib, slowdown_percent)
    table = np.column_stack([np.asarray(column, float) for column in columns])
    x, y, z = table[np.isfinite(table).all(axis=1)].T
    if len(x) < 3:
        raise InvalidValueError(f"a sensitivity surface of '{target}' needs 3 points or more, got {len(x)}")
    figure, axes = axes_of(
        f"Sensitivity of {target}",
        "competitors' cache access rate, L2MISS [M/s]",
        "competitors' cache occupancy [MiB]",
        ax=ax,
    )
    top = axis_top(z)
    wide = x.min() > 0 and x.max() > _WIDE * x.min()
    if wide:
        axes.set_xscale("log")
    surface = _triangulated(x, y, logarithmic=bool(wide))
    if surface is not None:
        levels = np.linspace(0, top, 13)
        axes.tricontourf(surface, np.clip(z, 0, top), levels, cmap=_SEQUENTIAL, alpha=0.85)
    style: dict[str, Any] = {"s": 26, "edgecolors": "white", "linewidths": 0.5, "zorder": 3}
    points = axes.scatter(x, y, c=z, cmap=_SEQUENTIAL, vmin=0, vmax=top, **style)
    bar = figure.colorbar(points, ax=axes, pad=0.02)
    bar.set_label("slowdown [%]")
    bar.outline.set_visible(False)
    if llc_mib is not None:
        axes.axhline(llc_mib, color=_INK, linewidth=1, linestyle="--")
        place: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "xytext": (0, 4), "textcoords": "offset points"}
        axes.annotate(f"LLC {llc_mib:.3g} MiB", (0.01, llc_mib), va="bottom", fontsize=9, color=_INK, **place)
    if not wide:
        axes.set_xlim(0, x.max() * 1.03)
    axes.set_ylim(0, max(float(y.max()), llc_mib or 0.0) * 1.09)
    return figure


def predicted_against_measured(
    measured_percent: ArrayLike,
    predicted_percent: ArrayLike,
    names: Sequence[str],
    *,
    title: str = "",
    ax: "Axes | None" = None,
) -> "Figure":
    """Draw predicted over measured slowdown, with lines at 5 and 10 % of the solo throughput.

    Each point belongs to the NF in `names`, with a colour and marker per NF.
    """
    measured, predicted = np.asarray(measured_percent, float), np.asarray(predicted_percent, float)
    figure, axes = axes_of(
        title or "Predicted against measured", "measured slowdown [%]", "predicted slowdown [%]", (4.8, 5.4), ax
    )
    finite = [value for value in (*measured.ravel(), *predicted.ravel()) if np.isfinite(value)]
    low, high = min([0.0, *finite]) - 1.0, axis_top(finite)
    line = np.array([low, high])
    axes.plot(line, line, color=_INK, linewidth=1)
    for band, dash in zip(_BANDS_PERCENT, ("--", ":"), strict=True):
        for sign in (1, -1):
            axes.plot(
                line,
                line + sign * band,
                color="#767676",
                linewidth=0.9,
                linestyle=dash,
                label=f"± {band:g} % of solo" if sign > 0 else None,
            )
    for index, name in enumerate(dict.fromkeys(names)):
        chosen = np.array([item == name for item in names])
        style: dict[str, Any] = {"color": COLOURS[index % len(COLOURS)], "marker": _MARKERS[index % len(_MARKERS)]}
        axes.scatter(
            measured[chosen],
            predicted[chosen],
            s=22,
            alpha=0.75,
            linewidths=0.3,
            edgecolors="white",
            label=name,
            **style,
        )
    axes.set_xlim(low, high)
    axes.set_ylim(low, high)
    axes.set_aspect("equal")
    legend_below(axes)
    return figure


def error_cdf(errors_percent: Mapping[str, ArrayLike]) -> "Figure":
    """Draw the distribution of absolute throughput errors of several models.

    `errors_percent`: model -> absolute errors relative to the measured throughput [%].
    """
    title = "Prediction error on mixes"
    figure, axes = axes_of(title, "absolute error of throughput [%]", "share of predictions [%]", (4.8, 5.2))
    nearest = np.inf
    for index, (name, values) in enumerate(errors_percent.items()):
        errors = np.sort(np.abs(np.asarray(values, float)))
        errors = errors[np.isfinite(errors)]
        if not len(errors):
            continue
        nearest = min(nearest, float(np.percentile(errors, 95)))
        share = 100.0 * np.arange(1, len(errors) + 1) / len(errors)
        label = f"{name} (mean {errors.mean():.1f} %)"
        axes.step(
            np.r_[0, errors],
            np.r_[0, share],
            where="post",
            color=COLOURS[index % len(COLOURS)],
            linestyle=_DASHES[index % 5],
            linewidth=2,
            label=label,
        )
    for band in _BANDS_PERCENT:
        axes.axvline(band, color="#767676", linewidth=0.8, linestyle=":")
        axes.annotate(f"{band:g} %", (band, 1), xytext=(3, 2), textcoords="offset points", fontsize=9, color="#555555")
    axes.set_xlim(0, _ERROR_TOP if nearest <= _ERROR_TOP else 100.0)
    axes.set_ylim(0, 101)
    legend_below(axes, columns=1)
    return figure


def pair_matrix(
    slowdown_percent: ArrayLike, targets: Sequence[str], competitors: Sequence[str], *, title: str = "Slowdown of pairs"
) -> "Figure":
    """Draw the slowdown of every target beside every competitor as a labelled matrix.

    `slowdown_percent`, shape (len(targets), len(competitors)): slowdown [%]; NaN where not known. `targets`,
    `competitors`: row and column names. `title`: title above the axes.
    """
    values = np.asarray(slowdown_percent, float)
    size = (max(2.2 + 0.44 * len(competitors), 1.2 + 0.1 * len(title)), 1.9 + 0.36 * len(targets))
    figure, axes = axes_of(title, "competitor", "target", size=size)
    top = axis_top(values)
    image = axes.imshow(values, cmap=_SEQUENTIAL, vmin=0, vmax=top, aspect="auto")
    axes.set_xticks(range(len(competitors)), competitors, rotation=40, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(targets)), targets)
    axes.grid(visible=False)
    axes.tick_params(length=0)
    for row, column in np.argwhere(np.isfinite(values)):
        colour = "black" if values[row, column] > 0.55 * top else "white"
        axes.text(
            column, row, f"{max(values[row, column], 0.0):.0f}", ha="center", va="center", fontsize=9, color=colour
        )
    for spine in axes.spines.values():
        spine.set_visible(False)
    bar = figure.colorbar(image, ax=axes, pad=0.02)
    bar.set_label("slowdown [%]")
    bar.outline.set_visible(False)
    return figure


def axes_of(
    title: str, xlabel: str, ylabel: str, size: tuple[float, float] = SIZE, ax: "Axes | None" = None
) -> "tuple[Figure, Axes]":
    """Return axes in the common style and their figure: the given axes, or those of a new figure."""
    from matplotlib.figure import Figure  # pyplot would keep every figure alive and choose a back end

    if ax is None:
        ax = Figure(figsize=size, dpi=120, layout="constrained", facecolor="white").subplots()
    styled(ax, title, xlabel, ylabel)
    return cast("Figure", ax.figure), ax


def styled(axes: "Axes", title: str, xlabel: str, ylabel: str) -> None:
    """Set the texts and common style of axes."""
    axes.set_title(title, loc="left", fontsize=11, fontweight="bold", color=_INK)
    axes.set_xlabel(xlabel, color=_INK)
    axes.set_ylabel(ylabel, color=_INK)
    axes.grid(visible=True, color="#E4E4E4", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=_INK, labelsize=9)


def legend_below(axes: "Axes", columns: int = 3) -> None:
    """Put the legend below the axes, where it covers nothing and costs no width."""
    axes.legend(fontsize=9, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=columns)


def axis_top(slowdown_percent: ArrayLike) -> float:
    """Return the upper end of a slowdown axis [%]: 60, or 100 if a value lies beyond.

    >>> axis_top([3.0, 42.0]), axis_top([3.0, 61.0])
    (60.0, 100.0)
    """
    values = np.asarray(slowdown_percent, float)
    return 100.0 if (values[np.isfinite(values)] > _SLOWDOWN_TOP).any() else _SLOWDOWN_TOP


def _triangulated(x: NDArray[np.float64], y: NDArray[np.float64], *, logarithmic: bool) -> "Triangulation | None":
    """Return the interpolated surface between points; None if they lie on a line."""
    from matplotlib.tri import Triangulation

    seen = np.log10(x) if logarithmic else x
    scaled = np.column_stack([(item - item.mean()) / (np.ptp(item) or 1.0) for item in (seen, y)])
    if np.linalg.svd(scaled, compute_uv=False)[-1] < _FLAT:
        return None
    return Triangulation(x, y, Triangulation(scaled[:, 0], scaled[:, 1]).triangles)
