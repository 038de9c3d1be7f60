"""Training curves: each agent's reward by step, one line a method, with the range over seeds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hacpo.errors import RegistryError
from hacpo.registry import Registry
from hacpo.report.asked import wanted_by_cells, wanted_by_grid
from hacpo.report.figure import check_ending, literal, save, style
from hacpo.report.names import identities, names_in

SMOOTHED = 5
"""Steps in the trailing mean, as in the default capability window."""

CROWDED = 6
"""Methods that a panel can show with their bands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One agent under one method."""

    combination: str
    agent: str
    method: str
    rewards: dict[int, list[float]]
    """seed -> mean reward of each step."""


def sweep_curves(registry: Registry, sweep: str) -> list[Curve]:
    """Rewards of all finished and running cells of a sweep, as far as they are."""
    view = registry.sweep(sweep)
    is_grid = "grid" in view.config
    wanted = wanted_by_grid(view.config, view.cells) if is_grid else wanted_by_cells(view.cells)
    models = {n: str(a["model"]) for n, a in view.config.get("agents", {}).items()}
    known = identities(models, view.cells)
    curves = []
    for row in wanted:
        for agent in row.agents:
            rewards = {}
            for seed in row.seeds:
                cell = row.cells[agent, seed]
                if cell is None:
                    continue
                name = names_in(cell, known)[agent].agent
                steps = [s for s in registry.step_rows(cell.key) if s.agent == name]
                if steps:
                    rewards[seed] = [step.reward_mean for step in steps]
            if rewards:
                curves.append(
                    Curve(
                        combination=row.combination, agent=agent, method=row.method, rewards=rewards
                    )
                )
    if not curves:
        raise RegistryError(f"sweep {sweep!r} has no steps yet: see `hacpo status {sweep}`")
    return curves


def smoothed(rewards: list[float]) -> list[float]:
    """Trailing mean over at most `SMOOTHED` steps; NaN where none of them was graded."""
    windows = (rewards[max(0, i + 1 - SMOOTHED) : i + 1] for i in range(len(rewards)))
    return [_mean([value for value in window if not math.isnan(value)]) for window in windows]


def draw_curves(curves: list[Curve], path: Path) -> None:
    """Write a figure; its kind is the file's ending (svg, png, pdf).

    Raises:
        ConfigError: another ending.
    """
    check_ending(path)
    save(curves_figure(curves), path)


def curves_figure(curves: list[Curve]) -> Any:
    """A panel for each agent of each combination, a line with a band for each method.

    More than `CROWDED` methods are shown in several such blocks, HACPO in each of them.
    """
    from matplotlib.figure import Figure

    methods = list(dict.fromkeys(c.method for c in curves))
    panels = list(dict.fromkeys((c.combination, c.agent) for c in curves))
    blocks = _blocks(methods)
    columns = min(3, len(panels))
    width = 4.2 * columns
    labels = {method: literal(_label(method, curves)) for method in methods}
    beside = max(1, int(width / (0.7 + 0.09 * max(map(len, labels.values())))))
    heights = [3.1 * -(-len(panels) // columns) + 0.2 * (1 + -(-len(b) // beside)) for b in blocks]
    figure = Figure(figsize=(width, sum(heights)), layout="constrained")
    parts = figure.subfigures(len(blocks), squeeze=False, height_ratios=heights)
    for part, block in zip(parts.flat, blocks, strict=True):
        lines = _draw_block(part, curves, panels, block, methods)
        part.legend(
            lines.values(),
            [labels[method] for method in lines],
            loc="outside lower center",
            ncols=min(beside, len(lines)),
            frameon=False,
            handlelength=4,
        )
    return figure


def _blocks(methods: list[str]) -> list[list[str]]:
    """Equally many in each."""
    count = -(-len(methods) // CROWDED)
    size = -(-len(methods) // count)
    blocks = [methods[at : at + size] for at in range(0, len(methods), size)]
    return [
        ["hacpo", *block] if "hacpo" in methods and "hacpo" not in block else block
        for block in blocks
    ]


def _draw_block(
    part: Any,
    curves: list[Curve],
    panels: list[tuple[str, str]],
    block: list[str],
    methods: list[str],
) -> dict[str, Any]:
    """Panels of some methods; returns a line of each, for the legend."""
    columns = min(3, len(panels))
    axes: Any = part.subplots(-(-len(panels) // columns), columns, squeeze=False, sharey=True)
    several = len({combination for combination, _ in panels}) > 1
    lines: dict[str, Any] = {}
    for axis, (combination, agent) in zip(axes.flat, panels, strict=False):
        for curve in curves:
            if (curve.combination, curve.agent) == (combination, agent) and curve.method in block:
                line = _line(axis, curve, methods.index(curve.method), len(methods))
                lines.setdefault(curve.method, line)
        title = f"agent {agent} of {combination}" if several else f"agent {agent}"
        axis.set_title(literal(title))
        axis.set_xlabel("step")
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    for axis in axes[:, 0]:
        axis.set_ylabel(f"reward (mean of {SMOOTHED} steps)")
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    return lines


def _line(axis: Any, curve: Curve, position: int, methods: int) -> Any:
    """The mean over seeds; the band is from the lowest to the highest seed."""
    seeds = [smoothed(rewards) for rewards in curve.rewards.values()]
    length = min(map(len, seeds))
    columns = list(zip(*(seed[:length] for seed in seeds), strict=True))
    steps = range(1, length + 1)
    means = [_mean(column) for column in columns]
    look = style(position)
    every = max(1, length // 6)
    marks = (position * every // methods, every)  # not one above the other
    (line,) = axis.plot(steps, means, **look, linewidth=1.8, markersize=4.5, markevery=marks)
    if len(seeds) > 1:
        lows, highs = [min(c) for c in columns], [max(c) for c in columns]
        axis.fill_between(steps, lows, highs, color=look["color"], alpha=0.15, linewidth=0)
    return line


def _label(method: str, curves: list[Curve]) -> str:
    seeds = {len(curve.rewards) for curve in curves if curve.method == method}
    fewest, most = min(seeds), max(seeds)
    if most == 1:
        return method
    return f"{method} ({most} seeds)" if fewest == most else f"{method} ({fewest}-{most} seeds)"


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan
