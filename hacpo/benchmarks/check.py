"""What is in a folder of problem files: counts, hashes, damage, duplicates, overlap."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from hacpo.benchmarks.catalogue import SETS, ProblemSet
from hacpo.benchmarks.damage import control_characters, damaged
from hacpo.benchmarks.files import read_set
from hacpo.errors import DataError
from hacpo.problems import load_problems, plain_text, problems_digest
from hacpo.types import Problem

Verdict = Literal["known", "count", "unknown", "missing", "unreadable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SetReport:
    """What was found out about one set."""

    name: str
    verdict: Verdict
    """known: content of a known source; count: as many as a source has; unknown: neither."""
    says: str
    """The verdict for people."""
    count: int = 0
    digest: str = ""
    control_characters: int = 0
    """Problems that hold some beside line feeds; tabs in drawings are harmless."""
    damaged: list[str] = field(default_factory=list)
    """`id: command` of LaTeX commands that became control characters."""
    duplicates: list[str] = field(default_factory=list)
    """Ids of problems whose text stands before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """Problems to train on that are also in a benchmark; white space does not count."""

    train: str
    benchmark: str
    pairs: list[tuple[str, str]]
    """(id there, id here)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataReport:
    folder: Path
    sets: list[SetReport]
    overlaps: list[Overlap]

    @property
    def is_usable(self) -> bool:
        """False if a file that is there is not what its name says."""
        return all(each.verdict not in ("unknown", "unreadable") for each in self.sets)


def check_data(folder: Path, train: Sequence[str] = ()) -> DataReport:
    """Check every known file of a folder; further sets to train on are compared to the benchmarks.

    Raises:
        DataError: no such folder, none of the files is there, a further set cannot be read.
    """
    if not folder.is_dir():
        raise DataError(
            f"{folder}: no such folder of problem files; `hacpo data fetch all` makes it, "
            "HACPO_DATA names another"
        )
    problems: dict[str, list[Problem]] = {}
    reports = []
    for name, each in SETS.items():
        try:
            if (folder / each.file).is_file():
                problems[name] = read_set(each, folder)
                reports.append(_report(each, problems[name]))
            else:
                reports.append(SetReport(name=name, verdict="missing", says=f"no {each.file}"))
        except DataError as error:
            reports.append(SetReport(name=name, verdict="unreadable", says=str(error)))
    if all(report.verdict == "missing" for report in reports):
        known = ", ".join(each.file for each in SETS.values())
        raise DataError(f"{folder}: holds none of {known}")
    sets_to_train = {name: found for name, found in problems.items() if not SETS[name].samples}
    sets_to_train |= {spec: load_problems(spec) for spec in train}
    overlaps = [
        Overlap(train=trained, benchmark=name, pairs=pairs)
        for trained, ours in sets_to_train.items()
        for name, theirs in problems.items()
        if SETS[name].samples and (pairs := shared(ours, theirs))
    ]
    return DataReport(folder=folder, sets=reports, overlaps=overlaps)


def recognize(each: ProblemSet, count: int, digest: str) -> tuple[Verdict, str]:
    """Which of its sources a set's content is from."""
    for source in each.sources:
        if source.digest == digest:
            return "known", source.name
    for source in each.sources:
        if source.count == count:
            return "count", f"as many as {source.name}; other content than was seen"
    expected = ", ".join(f"{source.count} ({source.name})" for source in each.sources)
    return "unknown", f"{count} problems; expected {expected}"


def shared(train: Sequence[Problem], benchmark: Sequence[Problem]) -> list[tuple[str, str]]:
    """(id in train, id in benchmark) of problems with the same text but for white space."""
    trained = {plain_text(problem.problem): problem.id for problem in train}
    return [
        (trained[text], problem.id)
        for problem in benchmark
        if (text := plain_text(problem.problem)) in trained
    ]


def _report(each: ProblemSet, problems: list[Problem]) -> SetReport:
    digest = problems_digest(problems)
    verdict, says = recognize(each, len(problems), digest)
    seen: Counter[str] = Counter()
    duplicates = []
    for problem in problems:
        text = plain_text(problem.problem)
        if seen[text]:
            duplicates.append(problem.id)
        seen[text] += 1
    texts = [(problem.id, f"{problem.problem}\n{problem.answer}") for problem in problems]
    return SetReport(
        name=each.name,
        verdict=verdict,
        says=says,
        count=len(problems),
        digest=digest,
        control_characters=sum(control_characters(text) > 0 for _, text in texts),
        damaged=[f"{id_}: {command}" for id_, text in texts for command in damaged(text)],
        duplicates=duplicates,
    )
