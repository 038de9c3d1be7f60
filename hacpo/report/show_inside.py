"""Sections that say what the methods did: cost, ratios, clips, who learned from whom."""

from collections.abc import Mapping, Sequence

from hacpo.report.cost import Cost
from hacpo.report.diagnostics import Inside, Ratios
from hacpo.report.section import (
    NOTHING,
    Section,
    Table,
    by_combination,
    count,
    number,
    percent,
    ratio,
)
from hacpo.report.table import MEAN

CLIPS = {
    "clip/self_low": "own,\nbelow",
    "clip/self_high": "own,\nabove",
    "clip/cross_floor": "others',\nbelow floor",
    "clip/cross_ceiling": "others',\nabove 1",
}


def cost(costs: Sequence[Cost]) -> Section:
    """Rollouts and tokens of each agent, and whether its control cost the same."""
    several = len({one.combination for one in costs}) > 1
    lines = [
        f"{one.method} {one.agent}{f' ({one.combination})' if several else ''}: "
        f"not equal cost: {one.why}"
        for one in costs
        if one.control and one.why and one.agent != MEAN
    ]
    tables = by_combination(costs, _cost_table)
    return Section(key="cost", title="Cost", tables=tables, notes=[COST], lines=lines)


def ratios(inside: Sequence[Inside]) -> Section:
    """Self and cross importance ratios (the paper's Table 6)."""
    head = ["method", "agent", "self\nmean", "self\nspread", "self\nmin..max"]
    head += ["cross\nmean", "cross\nspread", "cross\nmin..max"]

    def table(group: Sequence[Inside]) -> Table:
        rows = [
            [
                *(one.method, one.agent),
                *_ratio_cells(one.self_ratio, 5),
                *_ratio_cells(one.cross_ratio, 4),
            ]
            for one in group
        ]
        return Table(head=head, rows=rows)

    tables = by_combination(inside, table)
    return Section(key="ratios", title="Importance ratios", tables=tables, notes=[RATIOS])


def clips(inside: Sequence[Inside]) -> Section:
    """Fractions of rows that are clipped."""

    def table(group: Sequence[Inside]) -> Table:
        rows = [
            [one.method, one.agent, *(percent(one.clips.get(name)) for name in CLIPS)]
            for one in group
        ]
        return Table(head=["method", "agent", *CLIPS.values()], rows=rows)

    tables = by_combination(inside, table)
    return Section(key="clips", title="Clipped rows, %", tables=tables, notes=[CLIPPED])


def sources(inside: Sequence[Inside]) -> Section:
    """Who learned from whom."""
    head = ["method", "learner", "source", "of its pool,\n%", "solved by the\nsource only, %"]
    head += ["ratio", "text\nkept, %", "source's\ncapability"]

    def table(group: Sequence[Inside]) -> Table:
        rows = [
            [
                *(one.method, one.agent, source.source),
                percent(source.share),
                percent(source.only_source_solved),
                number(source.ratio),
                percent(source.identical),
                ratio(source.capability),
            ]
            for one in group
            for source in one.sources
        ]
        return Table(head=head, rows=rows, text_columns=3)

    tables = by_combination([one for one in inside if one.sources], table)
    return Section(key="sources", title="Who learned from whom", tables=tables, notes=[SOURCES])


def missing(cells: Sequence[str]) -> Section:
    """Cells whose numbers are not in the tables."""
    return Section(
        key="missing", title=f"Missing, and in no mean above ({len(cells)})", lines=cells
    )


def unread(absent: Mapping[str, Sequence[str]]) -> Section:
    """Cells whose files are not in the ratios, clips and sources."""
    lines = [f"{reason}: {', '.join(labels)}" for reason, labels in absent.items()]
    number_of = sum(map(len, absent.values()))
    title = f"Runs whose files were not read ({number_of})"
    return Section(key="unread", title=title, lines=lines)


COST = (
    "Per agent and seed, as the runs' ledgers count; tokens by the tokenizer that sampled them. "
    "Equal cost: equal rollouts sampled and consumed by every agent under every seed, sampled "
    "tokens within 5%, and files and registry that agree."
)
RATIOS = (
    "Before clipping. Mean and spread (largest less smallest) of the steps' means over all seeds; "
    "min..max of single ratios. The paper's Table 6: self 1.00002 (0.0006), cross 0.8955 (0.074)."
)
CLIPPED = (
    "Of own rows those whose gradient the clip removes (below with negative, above with positive "
    "advantage), among which naive sharing counts all rows; of the others' rows those below the "
    "floor and above 1."
)
SOURCES = (
    "Solved by the source only: training problems on which a response of the source was right and "
    "none of the learner's. Ratio: mean before clipping. Text kept: rows whose text the learner's "
    "tokenizer left unchanged. Capability: source's over learner's, mean over steps."
)


def _cost_table(costs: Sequence[Cost]) -> Table:
    head = ["method", "agent", "rollouts\nsampled", "rollouts\nconsumed", "tokens\nsampled"]
    head += ["tokens\nconsumed", "device\nhours"]
    compared = any(one.control for one in costs)
    head += ["sampled rollouts,\nto control"] if compared else []
    rows = [
        [
            one.method,
            one.agent,
            count(one.rollouts_generated),
            count(one.rollouts_consumed),
            count(one.tokens_generated),
            count(one.tokens_consumed),
            number(one.device_seconds and one.device_seconds / 3600, 2),
            *([_to_control(one)] if compared else []),
        ]
        for one in costs
    ]
    strong = [i for i, one in enumerate(costs) if one.agent == MEAN]
    return Table(head=head, rows=rows, strong=strong)


def _ratio_cells(found: Ratios | None, digits: int) -> list[str]:
    if found is None:
        return [NOTHING] * 3
    bounds = NOTHING if found.low is None else f"{number(found.low)}..{number(found.high)}"
    return [number(found.mean, digits), number(found.spread, digits), bounds]


def _to_control(one: Cost) -> str:
    if not one.control:
        return NOTHING
    return f"{ratio(one.ratio_generated)}, {'equal cost' if one.equal else 'not equal'}"
