"""The sweep's raw numbers: one for each method, agent, seed and protocol, or why there is none."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hacpo.registry import DONE, RUNNING, CellView, CostRow, EvaluationRow
from hacpo.report.asked import Wanted
from hacpo.report.names import names_in


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One agent trained by one method from one seed."""

    combination: str
    method: str
    agent: str
    seed: int
    protocol: str
    cell: str
    """Label of its cell."""
    cell_key: str
    """Empty if there is no cell."""
    state: str
    before: float | None
    """Accuracy on the held-out problems; this and all below None unless the cell is done."""
    after: float | None
    rollouts_generated: int | None
    """Sampled by this agent in its training."""
    rollouts_consumed: int | None
    """That its training saw: its own and, under sharing, the others'."""
    missing: str
    """Why there is no accuracy, for people; empty if there is."""


class Facts:
    """Evaluations and costs of a sweep, to be looked up."""

    def __init__(
        self,
        evaluations: Sequence[EvaluationRow],
        costs: Sequence[CostRow],
        identities: Mapping[str, str],
    ) -> None:
        self._means = {(e.cell_key, e.agent, e.step, e.protocol): e.mean for e in evaluations}
        self._costs = {(cost.cell_key, cost.agent): cost for cost in costs}
        self._identities = identities

    def point(self, wanted: Wanted, agent: str, seed: int, protocol: str) -> Point:
        cell = wanted.cells[agent, seed]
        label = cell.label if cell else f"{wanted.method} {wanted.combination} s{seed}"
        before = after = cost = None
        missing = _unfinished(cell)
        if cell is not None and not missing:
            name = names_in(cell, self._identities)[agent].agent
            before = self._mean(cell.key, name, 0, protocol)
            after = self._mean(cell.key, name, wanted.steps, protocol)
            cost = self._costs.get((cell.key, name))
            if before is None or after is None:
                by = f" by {protocol}" if protocol else ""
                missing = f"done, but {agent} has no graded evaluation{by}"
        return Point(
            combination=wanted.combination,
            method=wanted.method,
            agent=agent,
            seed=seed,
            protocol=protocol,
            cell=label,
            cell_key=cell.key if cell else "",
            state=cell.state if cell else "absent",
            before=before,
            after=after,
            rollouts_generated=cost.rollouts_generated if cost else None,
            rollouts_consumed=cost.rollouts_consumed if cost else None,
            missing=missing,
        )

    def _mean(self, key: str, agent: str, step: int, protocol: str) -> float | None:
        mean = self._means.get((key, agent, step, protocol))
        return None if mean is None or math.isnan(mean) else mean


def _unfinished(cell: CellView | None) -> str:
    if cell is None:
        return "not in the sweep"
    if cell.state == DONE:
        return ""
    if cell.state == RUNNING:
        return f"running, step {cell.steps_done} of {cell.steps_total or '?'}"
    return f"{cell.state}: {cell.error}" if cell.error else cell.state
