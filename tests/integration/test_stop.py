"""A sweep that is paused in the middle of a cell: a checkpoint there, and the same result later."""

import json
import logging
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from hacpo.cells import run_cell_spec
from hacpo.errors import DataError, NotFiniteError
from hacpo.loop import LOCAL, Phases
from hacpo.places import default_registry_url, home, run_folder, run_id_of
from hacpo.presets import load_run
from hacpo.registry import Registry
from hacpo.work import claim_cell, work_on
from tests.integration.test_resume import equal
from tests.tiny import tiny_pair

STEPS = 8


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    config = tiny_pair(tmp_path_factory.mktemp("models"))
    config |= {"steps": STEPS, "checkpoints": {"every": 5, "keep_last": 1, "keep_best": 1}}
    return config | {"evaluate": {"samples": 2, "greedy": False}}


def work(registry: Registry, phases: Phases = LOCAL) -> bool:
    claim = claim_cell(registry)
    assert claim is not None
    return work_on(registry, claim, phases=phases, offline=True)


def submit(registry: Registry, config: dict[str, Any]) -> str:
    spec = run_cell_spec(load_run(config), home())
    registry.register_sweep("sweep", owner="", config={}, cells=[spec])
    return spec.key


def asking(registry: Registry, wanted: str, at: int) -> Phases:
    """The usual phases, in whose step `at` somebody changes their mind."""

    def update(run_id: str, step: int, agents: tuple[str, ...]) -> None:
        LOCAL.update(run_id, step, agents)
        if step == at:
            registry.want("sweep", wanted)

    return LOCAL._replace(update=update)


def results(registry: Registry, key: str) -> tuple[Any, ...]:
    folder = run_folder(run_id_of(key)) / "checkpoints" / f"{STEPS:06d}"
    marker = json.loads((folder / "COMPLETE").read_text())
    rows = [(r.step, r.agent, r.reward_mean, r.tokens) for r in registry.step_rows(key)]
    return marker, rows, [(e.agent, e.step, e.mean) for e in registry.evaluations("sweep")]


@pytest.mark.parametrize("wanted", ["pause", "cancel"])
def test_it_stops_at_the_next_step_with_a_checkpoint_and_goes_on_as_if_it_had_not(
    config: dict[str, Any], wanted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HACPO_HOME", str(tmp_path / "whole"))
    with Registry.open(default_registry_url()) as registry:
        key = submit(registry, config)
        assert work(registry)
        whole = results(registry, key)
    monkeypatch.setenv("HACPO_HOME", str(tmp_path / "stopped"))
    with Registry.open(default_registry_url()) as registry:
        assert submit(registry, config) == key
        assert not work(registry, asking(registry, wanted, at=2))
        cell = registry.cell(key).cell
        shown = {"pause": "paused", "cancel": "cancelled"}[wanted]
        assert (cell.state, cell.attempts, cell.steps_done) == (shown, 0, 3)
        assert [row.step for row in registry.cell(key).checkpoints] == [3]
        assert claim_cell(registry) is None
        registry.want("sweep", "run")
        assert work(registry)
        assert equal(results(registry, key), whole)
        assert registry.cell(key).cell.attempts == 1
    log = (run_folder(run_id_of(key)) / "run.log").read_text()
    assert f"handed back ({wanted})" in log


def test_a_long_step_learns_of_it_from_the_lease(
    config: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HACPO_HOME", str(tmp_path))
    monkeypatch.setattr("hacpo.lease.LEASE_SECONDS", 2.0)
    with Registry.open(default_registry_url()) as registry:
        key = submit(registry, config)

        def evaluate(run_id: str, step: int, agents: tuple[str, ...]) -> None:
            registry.want("sweep", "pause")  # before any step is recorded
            time.sleep(3.0)

        assert not work(registry, LOCAL._replace(evaluate=evaluate))
        assert registry.cell(key).cell.steps_done in (0, 1)


def test_gradients_that_stay_not_finite_end_the_run_with_that_reason(
    config: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HACPO_HOME", str(tmp_path))
    monkeypatch.setattr(
        "hacpo.models.learner.Learner.optim_step", lambda self: (float("nan"), False)
    )
    with Registry.open(default_registry_url()) as registry:
        key = submit(registry, config)
        with pytest.raises(NotFiniteError, match="steps 0 to 2 had a finite gradient"):
            work(registry)
        cell = registry.cell(key).cell
        assert (cell.state, cell.error_kind, cell.attempts) == ("failed", "not_finite", 1)


def test_a_training_waits_for_a_registry_that_is_away(
    config: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Another writer that holds SQLite longer than its busy time stands for a database away."""
    monkeypatch.setenv("HACPO_HOME", str(tmp_path))
    monkeypatch.setattr("hacpo.registry.database.BUSY_SECONDS", 0.2)
    with Registry.open(default_registry_url()) as registry:
        key = submit(registry, config)
        free = threading.Event()

        def hold() -> None:
            with Registry.open(default_registry_url())._database.writing():
                free.wait(3.0)

        def update(run_id: str, step: int, agents: tuple[str, ...]) -> None:
            if step == 1:
                threading.Thread(target=hold, daemon=True).start()
                time.sleep(0.5)
            LOCAL.update(run_id, step, agents)

        with caplog.at_level(logging.WARNING, logger="hacpo"):
            assert work(registry, LOCAL._replace(update=update))
        assert "database is locked" in caplog.text
        assert registry.cell(key).cell.attempts == 1


def test_a_cell_whose_model_has_changed_since_it_was_queued_is_not_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its key says what it was to be trained from; so does a newer version of the results."""
    monkeypatch.setenv("HACPO_HOME", str(tmp_path / "home"))
    config = tiny_pair(tmp_path / "models") | {"steps": 1}
    with Registry.open(default_registry_url()) as registry:
        key = submit(registry, config)
        (Path(config["agents"]["a"]["model"]) / "special_tokens_map.json").write_text("{}")
        with pytest.raises(DataError, match="is not here as it was where it was queued"):
            work(registry)
        cell = registry.cell(key).cell
    assert (cell.state, cell.error_kind, cell.steps_done) == ("failed", "data", 0)
