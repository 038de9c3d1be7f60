"""Problem files of benchmarks for tests: the real ones where they are, small ones always.

The small ones hold real rows of MATH and GSM8K; those of the other benchmarks are made up.
"""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SMALL = ROOT / "tests" / "data" / "benchmarks"
REAL = ROOT.parent / "shared" / "data"
needs_real = pytest.mark.skipif(
    not REAL.is_dir(), reason="the real problem files (../shared/data) are not here"
)


def write_problems(path: Path, rows: list[tuple[str, str]]) -> Path:
    """A problem file of (problem, answer), with ids by its name."""
    lines = [
        json.dumps({"id": f"{path.stem}-{i}", "problem": problem, "answer": answer})
        for i, (problem, answer) in enumerate(rows)
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
