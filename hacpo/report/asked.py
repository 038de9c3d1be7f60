"""What a sweep asks for: the cells behind each row of its table, whether they exist yet or not."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hacpo.config import JOINT_METHODS, parse_method, settings_of
from hacpo.registry import CellView


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """One method of one combination, with its cells."""

    agents: tuple[str, ...]
    """That the table compares; named as in the sweep."""
    method: str
    """The column's name in the config: a method or a variant."""
    seeds: tuple[int, ...]
    steps: int
    """Completed steps at its end; 0 if it does not train."""
    cells: dict[tuple[str, int], CellView | None]
    """(agent, seed) -> the cell that trains it, alone or with the others; None if there is none."""

    @property
    def combination(self) -> str:
        return "+".join(self.agents)

    @property
    def control(self) -> str:
        """The method that makes as many updates from as many rows, without sharing."""
        return f"gspo_x{len(self.agents)}"


def wanted_by_grid(config: Mapping[str, Any], cells: Sequence[CellView]) -> list[Wanted]:
    """In the order of the file.

    Args:
        config: a GridConfig as JSON data.
        cells: of the sweep.
    """
    grid = config["grid"]
    found = {(cell.method, cell.combination, cell.seed): cell for cell in cells}
    columns: list[tuple[str, str, dict[str, Any]]] = [(m, m, {}) for m in grid["methods"]]
    for name, variant in (grid.get("variants") or {}).items():
        columns.append((name, variant["method"], variant["set"]))
    wanted: dict[tuple[str, ...], Wanted] = {}
    for combination in grid["combinations"]:
        own = settings_of(grid, combination)
        for column, method, changes in columns:
            steps = {"steps": config["steps"], **own, **changes}["steps"]
            resolved = f"gspo_x{len(combination)}" if method == "gspo_xN" else method
            shown = resolved if column == "gspo_xN" else column
            rule, _ = parse_method(resolved)
            together = "+".join(sorted(combination)) if rule in JOINT_METHODS else None
            # Without training there is nothing that a seed could change: one cell.
            seeds = [0] if rule == "initial" else grid["seeds"]
            row = Wanted(
                agents=tuple(combination),
                method=shown,
                seeds=tuple(seeds),
                steps=0 if rule == "initial" else int(steps),
                cells={
                    (agent, seed): found.get((shown, together or agent, seed))
                    for agent in combination
                    for seed in seeds
                },
            )
            wanted[row.combination, shown] = row  # gspo_x2 and gspo_xN may both be listed
    return list(wanted.values())


def wanted_by_cells(cells: Sequence[CellView]) -> list[Wanted]:
    """Single trainings, which no grid relates: each is a row of its own and nothing is averaged."""
    labels = Counter(cell.label for cell in cells)
    wanted = []
    for cell in cells:
        agents = tuple(cell.combination.split("+"))
        unclear = f" {cell.key[:8]}" if labels[cell.label] > 1 else ""
        wanted.append(
            Wanted(
                agents=agents,
                method=f"{cell.method} s{cell.seed}{unclear}",
                seeds=(cell.seed,),
                steps=cell.steps_total,
                cells=dict.fromkeys([(agent, cell.seed) for agent in agents], cell),
            )
        )
    return wanted
