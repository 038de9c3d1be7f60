"""`hacpo verify`: grade a file of answers as verifier type math does."""

import json as jsonlib
import os
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from hacpo.cli.answers import read_answers
from hacpo.cli.errors import examples
from hacpo.cli.output import Json, console, plain_table

MAX_WORKERS = 4
EXAMPLES = examples(
    "hacpo verify answers.jsonl",
    "hacpo verify answers.json --json           # one outcome a row, in order",
    "hacpo verify answers.jsonl --strict        # verl's boxed match, as in the paper",
    note='A row is {"gold": "1/2", "response": "So it is \\\\boxed{0.5}."}; further keys are '
    "ignored. Outcomes: exact, equivalent, wrong, no_answer, timeout, error.",
)


def verify(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="JSON or JSONL with gold and response.")
    ],
    strict: Annotated[
        bool, typer.Option("--strict", help="Compare text as verl does, no algebra.")
    ] = False,
    json: Json = False,
) -> None:
    r"""Grade responses by the last \boxed{...}: the same text, or equal by value."""
    answers = read_answers(file)
    from hacpo.task_settings import VerifierConfig
    from hacpo.types import Problem
    from hacpo.verifiers import VerifierPool

    workers = min(MAX_WORKERS, os.cpu_count() or 1, len(answers))
    with VerifierPool(VerifierConfig(type="math", strict=strict, workers=workers)) as pool:
        grades = pool.grade(
            [
                (Problem(id=str(number), problem="", answer=gold), response)
                for number, (gold, response) in enumerate(answers)
            ]
        )
    if json:
        rows = [
            jsonlib.dumps({"outcome": g.outcome, "reward": g.reward, "reason": g.reason})
            for g in grades
        ]
        print("[" + ",\n ".join(rows) + "]")
        return
    table = plain_table("row", "outcome", "reward", "reason", numbers=("row", "reward"))
    for number, grade in enumerate(grades, start=1):
        reward = "-" if grade.reward is None else f"{grade.reward:g}"
        table.add_row(str(number), grade.outcome, reward, grade.reason)
    console().print(table)
    counts = Counter(grade.outcome for grade in grades).most_common()
    console().print(", ".join(f"{count} {outcome}" for outcome, count in counts))
