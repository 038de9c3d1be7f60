"""A report as plain parts, which Markdown, LaTeX, HTML and a terminal show each in its own way."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from hacpo.report.estimate import Estimate

NOTHING = "-"


class _OfCombination(Protocol):
    @property
    def combination(self) -> str: ...


_Item = TypeVar("_Item", bound=_OfCombination)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Cells are text; a line break stands where narrow columns need one."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    strong: Sequence[int] = ()
    """Rows that sum up others."""
    text_columns: int = 2
    """The first ones; those after them are numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A heading, what it says in words, and its tables."""

    key: str
    title: str
    text: Sequence[str] = ()
    """Paragraphs before the tables."""
    tables: Sequence[Table] = ()
    notes: Sequence[str] = ()
    """How to read the tables, after them."""
    lines: Sequence[str] = ()
    """A list at the end."""


def by_combination(items: Sequence[_Item], table: Callable[[list[_Item]], Table]) -> list[Table]:
    """A table for each combination, in order, with its name as title."""
    found: dict[str, list[_Item]] = {}
    for item in items:
        found.setdefault(item.combination, []).append(item)
    return [replace(table(group), title=name) for name, group in found.items()]


def percent(value: float | None, sign: str = "") -> str:
    """A fraction in percent or points."""
    if value is None:
        return NOTHING
    return f"{round(100 * value, 1) + 0.0:{sign}.1f}"  # + 0.0: no "-0.0"


def interval(mean: float | None, low: float | None, high: float | None, sign: str = "") -> str:
    if mean is None or low is None or high is None:
        return percent(mean, sign)
    return f"{percent(mean, sign)} [{percent(low, sign)}, {percent(high, sign)}]"


def seeds_or_interval(value: Estimate, sign: str = "") -> str:
    """The interval over seeds, or every seed's own value where they are too few for one."""
    if not value.points:
        return NOTHING
    if value.low is None:
        return ", ".join(percent(point, sign) for point in value.points.values())
    return interval(value.mean, value.low, value.high, sign)


def seeds_or_margin(value: Estimate) -> str:
    """As `seeds_or_interval`, shorter."""
    if value.mean is None or value.high is None:
        return seeds_or_interval(value)
    return f"{percent(value.mean)} ±{percent(value.high - value.mean)}"


def count(value: float | None) -> str:
    return NOTHING if value is None else f"{value:,.0f}"


def ratio(value: float | None) -> str:
    return NOTHING if value is None else f"x{value:.2f}"


def number(value: float | None, digits: int = 3) -> str:
    return NOTHING if value is None else f"{value:.{digits}f}"


def p_value(p: float | None) -> str:
    if p is None:
        return NOTHING
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def one_line(text: str) -> str:
    return text.replace("\n", " ")
