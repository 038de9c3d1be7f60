"""`hacpo rollouts show` on a run's folder."""

import json
from pathlib import Path
from typing import Any

import pytest

from hacpo.cli.rollouts import printable
from hacpo.ledger import Ledger, write_json
from hacpo.types import Rollout
from tests.cli_runner import Cli


def rollout(step: int, source: str, problem: str, index: int, text: str) -> Rollout:
    return Rollout(
        id=f"{step}/{source}/{problem}/{index}",
        problem_id=problem,
        source=source,
        token_ids=[1, 2],
        text=text,
        finish_reason="stop",
        sampler_logprobs=[-0.25, -0.5],
        source_logprobs=[-0.25, -0.75],
        entropy=0.5,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run with 2 steps of 2 agents, 2 problems, 2 responses; the last phase was not verified."""
    problems = tmp_path / "train.jsonl"
    rows = [{"id": f"p{i}", "problem": f"{i}+1=", "answer": str(i + 1)} for i in range(2)]
    problems.write_text("".join(json.dumps(row) + "\n" for row in rows))
    folder = tmp_path / "run"
    agents = {name: {"model": "m", "prompt": "Q: {problem}"} for name in "ab"}
    write_json(folder / "config.json", {"agents": agents, "problems": {"train": str(problems)}})
    ledger = Ledger(folder)
    for step in range(2):
        for agent in "ab":
            rollouts = [
                rollout(step, agent, p, i, f"#{i + 1}") for p in ("p0", "p1") for i in range(2)
            ]
            ledger.write_rollouts(step, agent, rollouts)
            if (step, agent) != (1, "b"):
                right = [r.text[1:] == str(int(r.problem_id[1:]) + 1) for r in rollouts]
                grades = {
                    r.id: (float(ok), "correct" if ok else "wrong", "")
                    for r, ok in zip(rollouts, right, strict=True)
                }
                ledger.write_grades(step, agent, grades)
    return folder


def shown(cli: Cli, folder: Path, *arguments: str) -> list[dict[str, Any]]:
    done = cli("rollouts", "show", str(folder), *arguments, "--json")
    rows: list[dict[str, Any]] = json.loads(done.out)["rows"]
    return rows


def test_a_rollout_is_shown_with_its_problem_and_grade(cli: Cli, folder: Path) -> None:
    row = shown(cli, folder, "--step", "0", "--source", "a")[0]
    assert (row["prompt"], row["answer"], row["response"]) == ("Q: 0+1=", "1", "#1")
    assert (row["reward"], row["outcome"], row["tokens"]) == (1.0, "correct", 2)
    assert (row["sampler_logprob"], row["trainer_logprob"]) == (-0.375, -0.5)  # means of two
    text = cli("rollouts", "show", str(folder), "--step", "0", "--limit", "1").out
    for part in ("Q: 0+1=", "reward 1", "stop after 2 tokens", "sampler -0.3750 trainer -0.5000"):
        assert part in text
    assert "showing 1 of 8 rows (step 0)" in text


def test_rollouts_are_filtered_by_step_source_outcome_and_problem(cli: Cli, folder: Path) -> None:
    assert {row["step"] for row in shown(cli, folder)} == {1}  # the newest
    assert len(shown(cli, folder, "--all-steps")) == 16
    assert {row["source"] for row in shown(cli, folder, "--source", "b")} == {"b"}
    wrong = shown(cli, folder, "--all-steps", "--outcome", "wrong")
    # of each verified agent and step: response 1 to p0 and response 0 to p1
    assert [row["id"][4:] for row in wrong] == ["p0/1", "p1/0"] * 3
    assert {row["problem_id"] for row in shown(cli, folder, "--problem", "p1")} == {"p1"}
    unverified = shown(cli, folder, "--all-steps", "--outcome", "unverified")
    assert {(row["step"], row["source"], row["reward"]) for row in unverified} == {(1, "b", None)}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--step", "7"], "rollouts are there for steps 0 to 1"),
        (["--source", "c"], "no agent 'c'; known: a, b"),
        (["--step", "0", "--all-steps"], "choose one"),
    ],
)
def test_a_filter_that_cannot_match_says_why(
    cli: Cli, folder: Path, arguments: list[str], reason: str
) -> None:
    done = cli("rollouts", "show", str(folder), *arguments)
    assert done.code == 2
    assert reason in done.err


def test_a_models_text_cannot_steer_the_terminal() -> None:
    assert printable("a\x1b[2Jb\rc\n\u202ed [red]") == ("a\\x1b[2Jb\\rc\n           \\u202ed [red]")
