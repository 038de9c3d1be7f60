"""Seconds for 10,000 normal answers under verifier type math, with two workers.

    python benchmarks/verifier.py [DATA]

DATA: a folder with JSONL problem files (key `answer`). Without it the golds are made up: integers,
fractions, surds, expressions, tuples in the shares of MATH. Of the responses three in ten have no
new text to compare (exact), the others are right in another writing or wrong; every gold has eight
responses, as in training.
"""

import json
import random
import resource
import sys
import time
from collections import Counter
from pathlib import Path

from hacpo.task_settings import VerifierConfig
from hacpo.types import Problem
from hacpo.verifiers import VerifierPool

ANSWERS = 10_000
RESPONSES = 8
SHARES = {"integer": 62, "fraction": 16, "surd": 8, "expression": 8, "tuple": 6}


def main() -> None:
    draw = random.Random(0)
    golds = read_golds(Path(sys.argv[1])) if len(sys.argv) > 1 else made_golds(draw)
    draw.shuffle(golds)
    rows = []
    for number, gold in enumerate(golds[: ANSWERS // RESPONSES]):
        problem = Problem(id=str(number), problem="", answer=gold)
        rows += [
            (problem, f"Let us think. {'Then x = 3. ' * 40} So it is \\boxed{{{answer}}}.")
            for answer in responses(gold, golds, draw)
        ]
    with VerifierPool(VerifierConfig(type="math", workers=2)) as pool:
        started = time.monotonic()
        grades = pool.grade(rows)
        seconds = time.monotonic() - started
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = used.ru_utime + used.ru_stime
    counts = dict(Counter(grade.outcome for grade in grades).most_common())
    print(f"{len(rows)} answers in {seconds:.1f} s, {processor:.1f} s of processor time: {counts}")


def responses(gold: str, golds: list[str], draw: random.Random) -> list[str]:
    """Three as the gold, two of its value in other writings, three wrong ones."""
    again = [gold.replace(r"\frac", r"\dfrac"), f"x = {gold}", f"{{{gold}}} \\cdot 1"]
    return [gold] * 3 + draw.sample(again, 2) + draw.sample(golds, 3)


def read_golds(folder: Path) -> list[str]:
    golds = []
    for path in sorted(folder.glob("math*.jsonl")):
        for line in path.read_text().split("\n"):
            if line and json.loads(line)["answer"]:
                golds.append(json.loads(line)["answer"])
    return golds


def made_golds(draw: random.Random) -> list[str]:
    def one(kind: str) -> str:
        a, b, c = (draw.randint(2, 60) for _ in range(3))
        return {
            "integer": str(a * b - 50 * c),
            "fraction": rf"\frac{{{a}}}{{{b}}}",
            "surd": rf"{a}\sqrt{{{b}}}",
            "expression": f"{a}x^2 - {b}x + {c}",
            "tuple": f"({a}, {b}, -{c})",
        }[kind]

    kinds = draw.choices(list(SHARES), list(SHARES.values()), k=ANSWERS)
    return [one(kind) for kind in kinds]


if __name__ == "__main__":
    main()
