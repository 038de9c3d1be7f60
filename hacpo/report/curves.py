"""Training curves: each agent's reward by step, one line a method, with the range over seeds."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hacpo.errors import ConfigError, RegistryError
from hacpo.registry import Registry
from hacpo.report.asked import wanted_by_cells, wanted_by_grid
from hacpo.report.names import identities, names_in

SMOOTHED = 5
"""Steps in the trailing mean, as in the default capability window."""
# Okabe and Ito: told apart by colour-blind eyes; the dashes tell them apart in print.
STYLES = [
    ("#0072B2", "-"),
    ("#D55E00", "--"),
    ("#009E73", "-."),
    ("#CC79A7", ":"),
    ("#E69F00", (0, (5, 1, 1, 1))),
    ("#56B4E9", (0, (3, 1))),
    ("#000000", (0, (1, 2))),
]


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
    """Trailing mean over at most `SMOOTHED` steps."""
    return [
        sum(part) / len(part)
        for part in (rewards[max(0, i + 1 - SMOOTHED) : i + 1] for i in range(len(rewards)))
    ]


def draw_curves(curves: list[Curve], path: Path) -> None:
    """Write a figure; its kind is the file's ending (svg, png, pdf).

    Raises:
        ConfigError: another ending.
    """
    if path.suffix not in (".svg", ".png", ".pdf"):
        raise ConfigError(f"{path}: curves are written as .svg, .png or .pdf")
    import matplotlib
    from matplotlib.figure import Figure

    panels = list(dict.fromkeys((c.combination, c.agent) for c in curves))
    methods = list(dict.fromkeys(c.method for c in curves))
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(4.2 * columns, 3.1 * rows), layout="constrained")
    axes: Any = figure.subplots(rows, columns, squeeze=False, sharey=True)
    several = len({combination for combination, _ in panels}) > 1
    for axis, (combination, agent) in zip(axes.flat, panels, strict=False):
        for curve in curves:
            if (curve.combination, curve.agent) == (combination, agent):
                _line(axis, curve, STYLES[methods.index(curve.method) % len(STYLES)])
        axis.set_title(f"agent {agent} of {combination}" if several else f"agent {agent}")
        axis.set_xlabel("step")
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    for axis in axes[:, 0]:
        axis.set_ylabel(f"reward (mean of {SMOOTHED} steps)")
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    axes.flat[0].legend(frameon=False, fontsize="small")
    # Equal data gives equal files: no date, no random ids.
    with matplotlib.rc_context({"svg.hashsalt": "hacpo"}):
        figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)


def _line(axis: Any, curve: Curve, style: tuple[str, Any]) -> None:
    """The mean over seeds; the band is from the lowest to the highest seed."""
    color, dashes = style
    seeds = [smoothed(rewards) for rewards in curve.rewards.values()]
    length = min(map(len, seeds))
    columns = list(zip(*(seed[:length] for seed in seeds), strict=True))
    steps = range(1, length + 1)
    label = curve.method if len(seeds) == 1 else f"{curve.method} ({len(seeds)} seeds)"
    means = [sum(column) / len(column) for column in columns]
    axis.plot(steps, means, color=color, linestyle=dashes, linewidth=1.8, label=label)
    if len(seeds) > 1:
        lows, highs = [min(c) for c in columns], [max(c) for c in columns]
        axis.fill_between(steps, lows, highs, color=color, alpha=0.15, linewidth=0)
