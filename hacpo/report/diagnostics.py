"""What happened inside the trainings, from the files of their runs on this machine."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from hacpo.errors import StorageError
from hacpo.places import run_folder, run_id_of
from hacpo.registry import CellView
from hacpo.report.asked import Wanted
from hacpo.report.cost import Counted
from hacpo.report.names import names_in
from hacpo.types import StepSummary

if TYPE_CHECKING:
    from hacpo.ledger import Ledger


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratios:
    """Importance ratios before clipping, over steps and seeds (the paper's Table 6)."""

    mean: float
    """Of the steps' means."""
    spread: float
    """Largest less smallest of the steps' means."""
    low: float | None
    """Smallest and largest single ratio."""
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What a learner took from one other agent, over steps and seeds."""

    source: str
    share: float
    """Of the rollouts in the learner's pool."""
    only_source_solved: float | None
    """Share of its training problems that the source solved and the learner did not, of those that
    both were graded on; None if the rollouts are gone."""
    ratio: float | None
    """Mean importance ratio of its rows."""
    identical: float | None
    """Share whose text the learner's tokenizer left unchanged."""
    capability: float | None
    """Of the source over the learner's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inside:
    """One method and learner of a combination."""

    combination: str
    method: str
    agent: str
    seeds: int
    steps: int
    self_ratio: Ratios | None
    cross_ratio: Ratios | None
    clips: dict[str, float]
    """clip/NAME -> mean over steps."""
    sources: list[Source]


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostics:
    """Of a sweep, and what could not be read."""

    inside: list[Inside] = field(default_factory=list)
    counted: dict[tuple[str, str], Counted] = field(default_factory=dict)
    absent: dict[str, list[str]] = field(default_factory=dict)
    """Why files could not be read -> labels of the cells."""


@dataclass(frozen=True, slots=True)
class _Read:
    """One run: its steps, and whether it is done."""

    summaries: list[StepSummary]
    ledger: "Ledger"
    done: bool


def diagnose(
    wanted: Sequence[Wanted],
    identities: dict[str, str],
    *,
    folder_of: Callable[[str], Path] = lambda key: run_folder(run_id_of(key)),
) -> Diagnostics:
    """Read the runs of all cells that have begun.

    Args:
        wanted: from the sweep's config.
        identities: agent of the sweep -> model identity.
        folder_of: cell key -> folder of its run.
    """
    absent: dict[str, list[str]] = {}
    runs: dict[str, _Read | None] = {}
    inside = []
    counted = {}
    for row in wanted:
        for agent in row.agents:
            found: list[tuple[_Read, dict[str, str]]] = []
            for seed in row.seeds:
                cell = row.cells[agent, seed]
                if cell is None or not row.steps or not (cell.steps_done or cell.state == "done"):
                    continue
                if cell.key not in runs:
                    runs[cell.key] = _read(cell, folder_of(cell.key), absent)
                run = runs[cell.key]
                if run is not None:
                    members = {n: a.agent for n, a in names_in(cell, identities).items()}
                    found.append((run, members))
                    if run.done and members[agent] in run.summaries[0].agents:
                        counted[cell.key, members[agent]] = _counted(run, members[agent])
            if found:
                inside.append(_inside(row, agent, found))
    return Diagnostics(inside=inside, counted=counted, absent=absent)


def _read(cell: CellView, folder: Path, absent: dict[str, list[str]]) -> _Read | None:
    if not (folder / "steps").is_dir():
        where = f" (it ran on {cell.host})" if cell.host else ""
        absent.setdefault(f"no files on this machine{where}", []).append(cell.label)
        return None
    from hacpo.ledger import Ledger  # loads pyarrow

    ledger = Ledger(folder)
    try:
        summaries = [ledger.read_summary(step) for step in ledger.steps()]
    except StorageError as error:
        absent.setdefault(str(error), []).append(cell.label)
        return None
    if not summaries:
        absent.setdefault("no finished step", []).append(cell.label)
        return None
    return _Read(summaries, ledger, cell.state == "done")


def _counted(run: _Read, member: str) -> Counted:
    own = [summary.agents[member] for summary in run.summaries]
    return Counted(
        rollouts_generated=sum(step.rollouts for step in own),
        rollouts_consumed=int(sum(step.metrics["rollouts/consumed"] for step in own)),
        tokens_generated=sum(step.tokens for step in own),
    )


def _inside(row: Wanted, agent: str, found: list[tuple[_Read, dict[str, str]]]) -> Inside:
    steps = [
        summary.agents[members[agent]].metrics
        for run, members in found
        for summary in run.summaries
        if members[agent] in summary.agents
    ]
    clips = sorted({name for step in steps for name in step if name.startswith("clip/")})
    others = [name for name in row.agents if name != agent]
    joint = [(run, members) for run, members in found if len(run.summaries[0].agents) > 1]
    return Inside(
        combination=row.combination,
        method=row.method,
        agent=agent,
        seeds=len(found),
        steps=min(len(run.summaries) for run, _ in found),
        self_ratio=_ratios(steps, "ratio/self"),
        cross_ratio=_ratios(steps, "ratio/cross"),
        clips={name: _mean([step.get(name) for step in steps]) or 0.0 for name in clips},
        sources=[_source(agent, other, joint) for other in others] if joint else [],
    )


def _ratios(steps: list[dict[str, float]], name: str) -> Ratios | None:
    means = _known([step.get(f"{name}_mean") for step in steps])
    if not means:
        return None
    lows = _known([step.get(f"{name}_min") for step in steps])
    highs = _known([step.get(f"{name}_max") for step in steps])
    return Ratios(
        mean=math.fsum(means) / len(means),
        spread=max(means) - min(means),
        low=min(lows) if lows else None,
        high=max(highs) if highs else None,
    )


def _source(learner: str, source: str, joint: list[tuple[_Read, dict[str, str]]]) -> Source:
    ratios: list[float | None] = []
    identical: list[float | None] = []
    capabilities: list[float | None] = []
    rows = pool = 0.0
    rescued: list[int] = []
    for run, members in joint:
        mine, theirs = members[learner], members[source]
        for summary in run.summaries:
            own, other = summary.agents[mine], summary.agents[theirs]
            ratios.append(own.metrics.get(f"ratio/cross_mean/{theirs}"))
            identical.append(own.metrics.get(f"retokenized/identical_fraction/{theirs}"))
            if own.capability > 0:
                capabilities.append(other.capability / own.capability)
            rows += other.rollouts
            pool += own.metrics.get("rollouts/consumed", 0.0)
        rescued += _rescued(run, mine, theirs)
    return Source(
        source=source,
        share=rows / pool if pool else 0.0,
        only_source_solved=sum(rescued) / len(rescued) if rescued else None,
        ratio=_mean(ratios),
        identical=_mean(identical),
        capability=_mean(capabilities),
    )


def _rescued(run: _Read, learner: str, source: str) -> list[int]:
    """1 for every training problem that the source solved and the learner did not, else 0."""
    marks = []
    for summary in run.summaries:
        try:
            own = run.ledger.read_rewards(summary.step, learner)
            other = run.ledger.read_rewards(summary.step, source)
        except StorageError:  # rollouts may be thrown away; the page then shows nothing
            return []
        marks += [int(max(other[p]) > 0 >= max(own[p])) for p in own if p in other]
    return marks


def _known(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None and math.isfinite(value)]


def _mean(values: Sequence[float | None]) -> float | None:
    known = _known(values)
    return math.fsum(known) / len(known) if known else None
