"""Answers made to hang, to crash or to fill the memory: each within its limit, the pool alive."""

import json
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from hacpo.verifiers.pool import MATH_MEMORY_BYTES
from tests.cli_runner import environment

HOSTILE = Path(__file__).parents[1] / "data" / "vectors" / "hostile_answers.json"
HARD, SLACK = 10.0, 2.0
SCRIPT = """
    import json, resource, sys, time
    from hacpo.task_settings import VerifierConfig
    from hacpo.types import Problem
    from hacpo.verifiers import VerifierPool

    gold = Problem(id="p", problem="", answer="5")
    rows = []
    with VerifierPool(VerifierConfig(type="math")) as pool:
        for hostile in json.load(open(sys.argv[1])):
            started = time.monotonic()
            graded, = pool.grade([(gold, hostile["response"])])
            seconds = time.monotonic() - started
            after, = pool.grade([(gold, "\\\\boxed{5.0}")])
            rows.append([hostile["name"], graded.outcome, graded.reward, seconds, after.outcome])
    # of all workers so far: those that ended have been waited for
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    print(json.dumps({"rows": rows, "peak_kb": peak}))
"""


@pytest.mark.slow
def test_hostile_answers_are_graded_within_limits_and_the_pool_goes_on() -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT), str(HOSTILE)],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    rows = found["rows"]
    assert len(rows) == len(json.loads(HOSTILE.read_text()))
    for name, outcome, reward, seconds, after in rows:
        assert outcome in ("wrong", "no_answer", "timeout", "error"), name
        assert reward == (None if outcome in ("timeout", "error") else 0.0), name
        assert seconds < HARD + SLACK, name
        assert after == "equivalent", name
    if sys.platform == "linux":
        assert found["peak_kb"] * 1024 < MATH_MEMORY_BYTES + (200 << 20)  # and its code
    assert Counter(row[1] for row in rows)["timeout"] >= 5  # there was something to withstand


@pytest.mark.slow
def test_a_worker_over_the_hard_limit_is_killed_and_replaced() -> None:
    script = """
        from hacpo.task_settings import VerifierConfig
        from hacpo.types import Problem
        from hacpo.verifiers import VerifierPool
        config = VerifierConfig(type="math", timeout=2.0)  # hard, before the soft one of 3 s
        with VerifierPool(config) as pool:
            gold = Problem(id="p", problem="", answer="5")
            rows = ["\\\\boxed{9^{9^{9^9}}}", "\\\\boxed{5}"]
            grades = pool.grade([(gold, row) for row in rows])
            print([g.outcome for g in grades], grades[0].reason)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "['timeout', 'exact'] no grade within 2 s\n"
