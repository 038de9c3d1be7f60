"""kill -9 at any moment, run again: every metric and the final weights are those of a whole run."""

import hashlib
import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import hacpo
from hacpo.api import Result
from hacpo.places import default_registry_url
from hacpo.registry import Registry
from tests.integration.killed_run import POINTS
from tests.tiny import tiny_pair

ROOT = Path(__file__).parents[2]
NOT_REPRODUCIBLE = ("time/", "memory/", "throughput/")
# What a 6-step run calls often enough; the n-th call falls into the middle of it.
KILLS = {
    "sampling": 11,
    "scoring": 25,
    "rollouts_written": 8,
    "grading": 9,
    "between_updates": 14,
    "summary": 4,
    "checkpoint_weights": 4,
    "checkpoint_optimizer": 3,
    "checkpoint_marker": 2,
    "checkpoint_rename": 2,
    "checkpoint_commit": 2,
    "step_commit": 4,
    "evaluation_written": 6,
    "finish": 1,
}


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    config = tiny_pair(tmp_path_factory.mktemp("models"))
    config |= {"steps": 6, "checkpoints": {"every": 2, "keep_last": 2, "keep_best": 1}}
    config["evaluate"] = {"samples": 2, "greedy": True, "every": 3}
    config["tracking"] = {"kl_every": 2}
    return config


@pytest.fixture(scope="module")
def whole(config: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HACPO_HOME", str(tmp_path_factory.mktemp("whole")))
        return facts(hacpo.train(config, offline=True))


def facts(result: Result) -> dict[str, Any]:
    """Everything about a run that must not depend on interruptions."""
    steps = [
        {
            name: {k: v for k, v in agent.metrics.items() if not k.startswith(NOT_REPRODUCIBLE)}
            for name, agent in summary.agents.items()
        }
        for summary in result.steps()
    ]
    agents = sorted(result.config.agents)
    weights = {
        name: hashlib.sha256((result.model(name) / "model.safetensors").read_bytes()).hexdigest()
        for name in agents
    }
    scores = {
        f"{name} {step}": [(e.protocol, e.mean, e.counts) for e in result.evaluations(name, step)]
        for name in agents
        for step in (0, 3, 6)
    }
    return {"steps": steps, "weights": weights, "scores": scores}


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[k], other[k]) for k in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, float) and math.isnan(one):
        return bool(math.isnan(other))
    return bool(one == other)


def test_the_points_are_all_tried() -> None:
    assert set(KILLS) == set(POINTS)


@pytest.mark.slow
@pytest.mark.parametrize("point", sorted(KILLS))
def test_a_killed_run_resumes_to_the_same_result(
    point: str,
    config: dict[str, Any],
    whole: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config))
    monkeypatch.setenv("HACPO_HOME", str(tmp_path / "home"))
    killed = subprocess.run(
        [sys.executable, "-m", "tests.integration.killed_run", str(file), point, str(KILLS[point])],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    result = hacpo.train(config, offline=True)
    assert equal(facts(result), whole)
    with Registry.open(default_registry_url()) as registry:
        recorded = [(row.step, row.agent) for row in registry.step_rows(result.cell.key)]
    assert sorted(recorded) == [(step, agent) for step in range(6) for agent in ("a", "b")]
    spooled = [json.loads(line) for line in (result.folder / "tracking.jsonl").open()]
    steps = {e["step"] for e in spooled if e["kind"] == "metrics" and e["name"] == "step"}
    assert steps == set(range(6))


def test_two_runs_of_one_config_are_equal(
    config: dict[str, Any], whole: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HACPO_HOME", str(tmp_path / "home"))
    assert equal(facts(hacpo.train(config, offline=True)), whole)


def test_another_seed_is_another_run(
    config: dict[str, Any], whole: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HACPO_HOME", str(tmp_path / "home"))
    other = facts(hacpo.train({**config, "seed": 1}, offline=True))
    assert not equal(other["steps"], whole["steps"])
    assert other["weights"] != whole["weights"]


def test_a_finished_run_is_not_repeated(
    config: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HACPO_HOME", str(tmp_path / "home"))
    short = {**config, "steps": 1, "evaluate": {"samples": 0, "greedy": False}}
    first = hacpo.train(short, offline=True)
    written = (first.folder / "steps" / "000000" / "metrics.json").stat().st_mtime_ns
    again = hacpo.train(short, offline=True)
    assert (again.folder / "steps" / "000000" / "metrics.json").stat().st_mtime_ns == written
    fresh = hacpo.train(short, offline=True, fresh=True)
    assert (fresh.folder / "steps" / "000000" / "metrics.json").stat().st_mtime_ns > written
