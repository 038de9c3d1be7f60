"""A file is there whole or not at all."""

import math
import os
from pathlib import Path

import pytest
import torch

from hacpo.checkpoints import (
    MARKER,
    latest_checkpoint,
    prune,
    read_optimizer,
    read_state,
    write_checkpoint,
)
from hacpo.errors import StorageError
from hacpo.ledger import Ledger, atomic_path, write_json
from hacpo.types import Rollout


def rollout(identifier: str) -> Rollout:
    return Rollout(
        id=identifier,
        problem_id="p",
        source="a",
        token_ids=[3, 1],
        text="\N{SNOWMAN}",
        finish_reason="stop",
        sampler_logprobs=[-0.5, -0.25],
        source_logprobs=[-0.5, -0.125],
        entropy=0.75,
    )


def test_rollouts_come_back_as_they_were(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    rows = [rollout("0/a/p/0"), rollout("0/a/p/1")]
    ledger.write_rollouts(0, "a", rows)
    assert ledger.read_rollouts(0, "a") == rows


def test_an_ungraded_reward_comes_back_as_nan(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.write_grades(0, "a", {"r": (math.nan, "timeout", "slow"), "s": (1.0, "correct", "")})
    grades = ledger.read_grades(0, "a")
    assert math.isnan(grades["r"][0])
    assert grades["s"] == (1.0, "correct", "")


@pytest.mark.parametrize("where", [0, 0.3, 0.6, 0.9, 1])
def test_a_flipped_byte_is_noticed(tmp_path: Path, where: float) -> None:
    ledger = Ledger(tmp_path)
    ledger.write_rollouts(0, "a", [rollout("0/a/p/0")])
    path = ledger.phase_file(0, "rollout", "a")
    data = bytearray(path.read_bytes())
    data[int(where * (len(data) - 1))] ^= 0x01
    path.write_bytes(data)
    with pytest.raises(StorageError, match="damaged"):
        ledger.read_rollouts(0, "a")


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    write_json(path, {"old": 1})

    def interrupted() -> None:
        with atomic_path(path) as temporary:
            temporary.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_text() == '{\n "old": 1\n}\n'
    assert os.listdir(tmp_path) == ["x.json"]


def test_steps_after_the_checkpoint_are_forgotten_but_its_own_samples_stay(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    for step in (3, 4, 5):
        ledger.write_rollouts(step, "a", [rollout(f"{step}/a/p/0")])
    ledger.forget_after(4)  # after 4 completed steps: step 4's samples came from these weights
    assert [ledger.phase_file(s, "rollout", "a").exists() for s in (3, 4, 5)] == [True, True, False]


def save_model(folder: Path) -> None:
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"weights")


def write(folder: Path, step: int) -> None:
    optimizer = {"exp_avg.w": torch.tensor([1.5]), "step.w": torch.tensor(3.0)}
    write_checkpoint(
        folder / f"{step:06d}", step, {"a": save_model}, {"a": optimizer}, {"rollouts": {"a": 7}}
    )


def test_a_checkpoint_holds_state_and_optimizer(tmp_path: Path) -> None:
    write(tmp_path, 5)
    found = latest_checkpoint(tmp_path)
    assert found is not None
    assert found.step == 5
    assert read_state(found) == {"rollouts": {"a": 7}, "step": 5}
    assert read_optimizer(found, "a")["exp_avg.w"].tolist() == [1.5]


@pytest.mark.parametrize("damage", ["no marker", "torn marker", "changed", "missing", "extra"])
def test_an_incomplete_or_damaged_checkpoint_is_passed_over(tmp_path: Path, damage: str) -> None:
    write(tmp_path, 4)
    write(tmp_path, 8)
    model = tmp_path / "000008" / "agents" / "a" / "model" / "model.safetensors"
    match damage:
        case "no marker":
            (tmp_path / "000008" / MARKER).unlink()
        case "torn marker":
            (tmp_path / "000008" / MARKER).write_text('{"agents/a')
        case "changed":
            model.write_bytes(b"weighty")
        case "missing":
            model.unlink()
        case "extra":
            (model.parent / "pytorch_model.bin").write_bytes(b"?")
    found = latest_checkpoint(tmp_path)
    assert found is not None
    assert found.step == 4


def test_a_checkpoint_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def full(_: Path) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(StorageError, match="No space left on device; free some space"):
        write_checkpoint(tmp_path / "000001", 1, {"a": full}, {"a": {}}, {})
    assert os.listdir(tmp_path) == []


def test_pruning_keeps_the_newest_and_the_chosen(tmp_path: Path) -> None:
    for step in (1, 2, 3, 4):
        write(tmp_path, step)
    assert prune(tmp_path, keep_last=1, keep={2}) == [1, 3]
    assert sorted(os.listdir(tmp_path)) == ["000002", "000004"]
