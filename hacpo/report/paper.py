"""The paper's own numbers (arXiv 2603.02604, Tables 1-4 and 7), where a sweep asks the same."""

import csv
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

BENCHMARKS = ("math500", "math", "gsm8k", "aime25_best30", "amc23", "minerva", "olympiad")
BEST30 = "aime25_best30"
"""Of verl's kind: a problem solved in a share s of n samples counts 1 - (1 - s)^n."""
_NAMES = {
    "aime25": BEST30,
    "aime2025": BEST30,
    "aime25best30": BEST30,
    "amc": "amc23",
    "amc2023": "amc23",
    "minervamath": "minerva",
    "olympiadbench": "olympiad",
}
_ROUNDED = 0.0011
"""Three decimals, twice rounded: up to this an average matches its row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperRow:
    """One line of one of the paper's tables; accuracies as fractions."""

    table: str
    models: tuple[str, ...]
    """Of the combination."""
    model: str
    method: str
    values: dict[str, float]
    """benchmark -> accuracy, of those that are printed."""
    published: float | None
    """The printed average."""

    @property
    def average(self) -> float | None:
        """Recomputed; None unless the whole row is printed."""
        if len(self.values) < len(BENCHMARKS):
            return None
        return math.fsum(self.values.values()) / len(BENCHMARKS)

    @property
    def average_matches(self) -> bool:
        """Whether the printed average is that of its row."""
        if self.published is None or self.average is None:
            return True
        return abs(self.published - self.average) <= _ROUNDED


@lru_cache(maxsize=1)
def paper_rows() -> tuple[PaperRow, ...]:
    """Every line of the tables; Table 4's benchmark is not named there and counts as none."""
    rows = []
    for name, column in (("paper_results.csv", "method"), ("paper_ablations.csv", "variant")):
        with (Path(__file__).parent / "data" / name).open(encoding="utf-8", newline="") as file:
            for line in csv.DictReader(file):
                if line["table"] == "4":
                    continue
                rows.append(
                    PaperRow(
                        table=line["table"],
                        models=tuple(line["combination"].split("+")),
                        model=line["model"],
                        method=line[column],
                        values={b: float(line[b]) for b in BENCHMARKS if line[b]},
                        published=float(line["average"]) if line["average"] else None,
                    )
                )
    return tuple(rows)


def paper_row(models: Sequence[str], model: str, method: str) -> PaperRow | None:
    """The paper's line for one model of a combination.

    Args:
        models: of the combination, as the sweep's config names them, e.g. `Qwen/Qwen3-4B-Base`.
        model: the one asked for.
        method: or variant, as the sweep calls it.
    """
    wanted = sorted(map(_plain, models))
    for row in paper_rows():
        same = sorted(map(_plain, row.models)) == wanted and _plain(row.model) == _plain(model)
        if same and row.method == method.removeprefix("hacpo_" if method != "hacpo" else ""):
            return row
    return None


def paper_benchmark(task: str) -> str:
    """The paper's column for a benchmark; empty if it has none."""
    plain = re.sub(r"[^a-z0-9]", "", task.lower()).removeprefix("hacpo")
    return _NAMES.get(plain, plain if plain in BENCHMARKS else "")


def best_of(scores: Mapping[str, float], samples: int) -> float | None:
    """What verl calls best@n, from each problem's share of solved samples."""
    if not scores:
        return None
    return math.fsum(1 - (1 - share) ** samples for share in scores.values()) / len(scores)


def _plain(model: str) -> str:
    """`Qwen/Qwen3-4B-Instruct-2507` as `qwen34binstruct`."""
    name = model.rstrip("/").rpartition("/")[2].lower().removesuffix("-2507")
    return re.sub(r"[^a-z0-9]", "", name)
