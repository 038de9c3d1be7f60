"""A figure of all gains with their intervals."""

from collections.abc import Sequence
from typing import Any

from hacpo.report.compare import Comparison
from hacpo.report.figure import literal, style
from hacpo.report.table import AVERAGE, MEAN


def gains_figure(compared: Sequence[Comparison]) -> Any | None:
    """A line for each method and agent that has an interval; several benchmarks: average.

    None if there is no interval.
    """
    from matplotlib.figure import Figure

    tasks = {one.task for one in compared}
    several = {AVERAGE} if len(tasks) > 1 else tasks
    known = [c for c in compared if c.difference is not None and c.difference.low is not None]
    shown = [one for one in known if one.task in several]
    if not shown:
        return None
    methods = list(dict.fromkeys(one.method for one in compared))
    combinations = list(dict.fromkeys(one.combination for one in shown))
    heights = [sum(one.combination == name for one in shown) for name in combinations]
    figure = Figure(figsize=(8.4, 0.9 * len(heights) + 0.27 * sum(heights)), layout="constrained")
    axes: Any = figure.subplots(
        len(heights), 1, squeeze=False, sharex=True, gridspec_kw={"height_ratios": heights}
    )
    for axis, name in zip(axes.flat, combinations, strict=True):
        _panel(axis, [one for one in shown if one.combination == name], methods)
        axis.set_title(literal(name))
    controls = " or ".join(dict.fromkeys(one.control for one in shown))
    axes.flat[-1].set_xlabel(literal(f"gain over {controls}, points (95% interval)"))
    return figure


def _panel(axis: Any, shown: list[Comparison], methods: list[str]) -> None:
    labels = []
    for position, one in enumerate(shown):
        found = one.difference
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        look = style(methods.index(one.method))
        whole = one.agent == MEAN
        axis.plot(
            [100 * found.low, 100 * found.high],
            [position, position],
            color=look["color"],
            linewidth=3.2 if whole else 1.6,
            solid_capstyle="butt",
        )
        axis.plot(
            100 * found.mean,
            position,
            marker=look["marker"],
            color=look["color"],
            markersize=8 if whole else 6,
            linestyle="",
        )
        labels.append(literal(f"{one.method}  {one.agent}"))
    axis.axvline(0, color="black", linewidth=0.8)
    axis.set_yticks(range(len(shown)), labels)
    axis.set_ylim(len(shown) - 0.5, -0.5)
    axis.grid(axis="x", alpha=0.3)
    axis.spines[["top", "right", "left"]].set_visible(False)
    axis.tick_params(axis="y", length=0)
