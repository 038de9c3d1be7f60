"""The sweep's raw numbers: one for each method, agent, seed and benchmark, or why there is none."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hacpo.registry import DONE, RUNNING, CellView, CostRow, EvaluationRow
from hacpo.report.asked import Wanted
from hacpo.report.names import names_in


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One agent trained by one method from one seed, on one benchmark."""

    combination: str
    method: str
    agent: str
    seed: int
    task: str
    protocol: str
    cell: str
    """Label of its cell."""
    cell_key: str
    """Empty if there is no cell."""
    member: str
    """What the cell calls the agent."""
    state: str
    steps: int
    """Completed at the end of its training."""
    before: float | None
    """Accuracy on the benchmark; this and all below None unless the cell is done."""
    after: float | None
    rollouts_generated: int | None
    """Sampled by this agent in its training."""
    rollouts_consumed: int | None
    """That its training saw: its own and, under sharing, the others'."""
    tokens_generated: int | None
    tokens_consumed: int | None
    """Of the rollouts above, counted by the tokenizers that sampled them."""
    device_seconds: float | None
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
        self._means = {
            (e.cell_key, e.agent, e.step, e.task, e.protocol): e.mean for e in evaluations
        }
        self._costs: dict[str, dict[str, CostRow]] = defaultdict(dict)
        for cost in costs:
            self._costs[cost.cell_key][cost.agent] = cost
        self.identities = identities

    def point(self, wanted: Wanted, agent: str, seed: int, task: str, protocol: str) -> Point:
        cell = wanted.cells[agent, seed]
        before = after = cost = None
        member = agent
        missing = _unfinished(cell)
        if cell is not None and not missing:
            member = names_in(cell, self.identities)[agent].agent
            before = self._mean(cell.key, member, 0, task, protocol)
            after = self._mean(cell.key, member, wanted.steps, task, protocol)
            cost = self._costs[cell.key].get(member)
            if after is None:
                by = f" by {protocol}" if protocol else ""
                of = "" if task == HELD_OUT else f" on {task}"
                missing = f"done, but {agent} has no graded evaluation{of}{by}"
        return Point(
            combination=wanted.combination,
            method=wanted.method,
            agent=agent,
            seed=seed,
            task=task,
            protocol=protocol,
            cell=cell.label if cell else f"{wanted.method} {wanted.combination} s{seed}",
            cell_key=cell.key if cell else "",
            member=member,
            state=cell.state if cell else "absent",
            steps=wanted.steps,
            before=before,
            after=after,
            rollouts_generated=cost.rollouts_generated if cost else None,
            rollouts_consumed=cost.rollouts_consumed if cost else None,
            tokens_generated=cost.tokens if cost else None,
            tokens_consumed=self._tokens_consumed(cost) if cost else None,
            device_seconds=cost.device_seconds if cost else None,
            missing=missing,
        )

    def _mean(self, key: str, agent: str, step: int, task: str, protocol: str) -> float | None:
        mean = self._means.get((key, agent, step, task, protocol))
        return None if mean is None or math.isnan(mean) else mean

    def _tokens_consumed(self, cost: CostRow) -> int | None:
        """Of the pool that the training read: all agents' or its own; None if it was neither."""
        pool = self._costs[cost.cell_key].values()
        if cost.rollouts_consumed == sum(each.rollouts_generated for each in pool):
            return sum(each.tokens for each in pool)
        return cost.tokens if cost.rollouts_consumed == cost.rollouts_generated else None


HELD_OUT = "held_out"
"""The benchmark that every run has: its held-out problems."""


def _unfinished(cell: CellView | None) -> str:
    if cell is None:
        return "not in the sweep"
    if cell.state == DONE:
        return ""
    if cell.state == RUNNING:
        return f"running, step {cell.steps_done} of {cell.steps_total or '?'}"
    return f"{cell.state}: {cell.error}" if cell.error else cell.state
