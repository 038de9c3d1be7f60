"""`hacpo plan` on two tiny models: calibration, prediction, output."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from hacpo.plan import fit
from hacpo.plan.calibrate import (
    AgentTimes,
    Calibration,
    EvaluationTimes,
    StepTimes,
)
from hacpo.plan.predict import predict
from hacpo.presets import load_run
from tests.cli_runner import Cli
from tests.tiny import tiny_pair

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def pair(tmp_path: Path) -> Path:
    path = tmp_path / "pair.yaml"
    path.write_text(yaml.safe_dump(tiny_pair(tmp_path)))
    return path


def calibrations(home: Path) -> list[Path]:
    return sorted((home / "calibrations").glob("*.json"))


def test_the_plan_of_a_pair(cli: Cli, pair: Path, home: Path) -> None:
    made = cli("plan", str(pair), "--json")
    assert made.code == 0, made.err
    data = json.loads(made.out)
    assert data["rollouts"] == 2 * 2 * 4 * 4
    assert set(data["agents"]) == set(data["seconds"]["agents"]) == {"a", "b"}
    assert data["agents"]["a"]["optimizer"] == 8 * data["agents"]["a"]["parameters"]
    (place,) = data["places"]
    assert data["expected"] <= place["needed"] < place["available"]
    seconds = data["seconds"]
    for agent in seconds["agents"].values():
        assert agent["rollouts"] == 16
        assert 16 <= agent["tokens"] <= 16 * 6
        assert min(agent["rollout"], agent["update"], agent["evaluation"]) > 0
    phases = sum(a[p] for a in seconds["agents"].values() for p in ("rollout", "verify", "update"))
    assert seconds["step"] == pytest.approx(phases + seconds["other"])
    assert seconds["total"] >= 2 * seconds["step"] + seconds["evaluations"]
    assert not list((home / "runs").iterdir())  # nothing stays but the calibration
    assert len(calibrations(home)) == 1


def test_a_calibration_is_measured_once(cli: Cli, pair: Path, home: Path) -> None:
    first = cli("plan", str(pair))
    assert "measured now" in first.out
    (path,) = calibrations(home)
    kept = path.read_bytes()
    second = cli("plan", str(pair), "--set", "steps=9", "--set", "seed=3")
    assert "measured before" in second.out
    assert "calibration" not in second.err
    assert path.read_bytes() == kept
    cli("plan", str(pair), "--set", "update.micro_tokens=256")
    assert len(calibrations(home)) == 2  # a setting that times depend on
    fresh = cli("plan", str(pair), "--fresh")
    assert "measured now" in fresh.out
    assert path.read_bytes() != kept
    path.write_text("{}")
    assert "measured now" in cli("plan", str(pair)).out  # damaged


def test_without_calibration_no_weights_are_loaded(cli: Cli, pair: Path, home: Path) -> None:
    config = yaml.safe_load(pair.read_text())
    for agent in config["agents"].values():
        (Path(agent["model"]) / "model.safetensors").write_bytes(b"no weights")
    made = cli("plan", str(pair), "--no-calibration", "--json")
    assert made.code == 0, made.err
    data = json.loads(made.out)
    assert data["seconds"] is data["expected"] is None
    assert data["places"][0]["needed"] > 0
    assert not calibrations(home)


def test_what_cannot_fit_is_refused_before_weights_are_loaded(
    cli: Cli, pair: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fit, "available_bytes", lambda: 1 << 20)
    refused = cli("plan", str(pair))
    assert refused.code == 2
    assert refused.out == ""
    assert refused.err.count("\n") == 1
    assert "of 0.0 GB of memory" in refused.err
    assert not calibrations(home)


def test_responses_that_no_model_takes_are_told_as_such(cli: Cli, pair: Path) -> None:
    refused = cli("plan", str(pair), "--set", "rollout.max_response_tokens=100000")
    assert (refused.code, refused.out) == (2, "")
    assert "than its model can take (64): lower rollout.max_response_tokens" in refused.err


def test_one_agent_alone(cli: Cli, pair: Path) -> None:
    made = cli("plan", str(pair), "--agent", "b", "--set", "method=gspo_x2", "--json")
    data = json.loads(made.out)
    assert list(data["agents"]) == ["b"]
    assert data["seconds"]["agents"]["b"]["rollouts"] == 4 * 8


def test_an_untrained_model_is_only_evaluated(cli: Cli, pair: Path) -> None:
    made = cli("plan", str(pair), "--agent", "a", "--set", "method=initial", "--json")
    assert made.code == 0, made.err
    data = json.loads(made.out)
    assert data["steps"] == data["rollouts"] == data["seconds"]["step"] == 0
    assert data["seconds"]["evaluations"] > 0


def test_a_wrong_config_is_refused(cli: Cli, pair: Path) -> None:
    refused = cli("plan", str(pair), "--set", "update.micro_token=5")
    assert (refused.code, refused.out) == (2, "")
    assert "did you mean 'micro_tokens'" in refused.err


def test_times_grow_with_batches_updates_and_problems(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"problems_per_step": 100, "rows_per_update": 8}
    config = load_run(
        tiny_pair(tmp_path)
        | {"update": settings, "steps": 10, "checkpoints": {"every": 4}, "method": "gspo"},
        ["rollout.batch_rows=32", "evaluate.greedy=false"],
        "a",
    )

    def step(problems: int, updates: int) -> StepTimes:
        # rollout: 1 s a batch of 8 problems, 0.5 s a problem; update: 2 s each, 0.25 s a problem
        agent = AgentTimes(
            rollout=-(-problems // 8) + 0.5 * problems,
            verify=0.0,
            update=2.0 * updates + 0.25 * problems,
            tokens=12 * problems,
            reward=0.5,
            truncated=0.25,
            uniform=0.5,
        )
        seconds = agent.rollout + agent.update + 0.1
        return StepTimes(problems, updates, seconds, {"a": agent})

    calibration = Calibration(
        steps=[step(2, 1), step(7, 4)],
        evaluations=[EvaluationTimes(2, {"a": 3.0}), EvaluationTimes(16, {"a": 10.0})],
        load_seconds=5.0,
        checkpoint_seconds=7.0,
    )
    seconds = predict(config, calibration, held_out=32)
    agent = seconds.agents["a"]
    assert agent.rollout == pytest.approx(13 + 50)
    assert agent.update == pytest.approx(2 * 50 + 25)
    assert agent.tokens == 1200
    assert (agent.truncated, agent.uniform, agent.reward) == (0.25, 0.5, 0.5)
    assert agent.evaluation == pytest.approx(20)  # 2 s a batch of 16 problems, 0.5 s a problem
    assert seconds.other == pytest.approx(0.1, rel=0.2)
    assert seconds.checkpoints == 3 * 7
    assert seconds.total == pytest.approx(5 + 10 * seconds.step + 2 * 20 + 21)
