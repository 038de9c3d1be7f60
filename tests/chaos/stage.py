"""The stage: a whole platform with a small sweep, whose undisturbed results are known."""

import hashlib
import json
import os
import shutil
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from sqlalchemy import delete

from hacpo.cells import expand
from hacpo.places import run_id_of
from hacpo.presets import load_grid
from hacpo.registry import Registry, SweepView
from hacpo.registry.models import Sweep
from hacpo.types import CellSpec
from hacpo.work import claim_cell, work_on
from tests.postgres_server import OwnPostgres, own_postgres
from tests.servers import platform, services
from tests.tiny import tiny_pair

STEPS = 40
LEASE_SECONDS = 6


@dataclass
class Stage:
    """Everything that a fault may touch."""

    folder: Path
    env: dict[str, str]
    grid: Path
    undisturbed: dict[str, Any]
    """Cell key -> results."""
    postgres: OwnPostgres | None
    outage: tuple[float, float] = (1, 10)
    """Seconds that a server is away, at least and at most."""

    @property
    def registry_url(self) -> str:
        return self.env["HACPO_REGISTRY_URL"]

    def specs(self, name: str) -> list[CellSpec]:
        return expand(load_grid(self.grid, [f"name={name}"]), self.folder)

    def submit(self, name: str) -> None:
        """Forget what earlier runs made, and queue the sweep; the reconciler does the rest."""
        specs = self.specs(name)
        with Registry.open(self.registry_url) as registry:
            with registry._database.writing() as connection:
                connection.execute(delete(Sweep))  # else cells keep the name of an earlier one
            for spec in specs:
                registry.clear_cell(spec.key)
                shutil.rmtree(self.folder / "runs" / run_id_of(spec.key), ignore_errors=True)
            registry.register_sweep(name, owner="chaos", config={}, cells=specs)

    def view(self, name: str) -> SweepView:
        with Registry.open(self.registry_url) as registry:
            registry.wait_for_database(60)
            return registry.sweep(name)

    def restart_services(self) -> None:
        services(self.env, "start")

    def prefect(self, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"{self.env['PREFECT_API_URL']}/{path}", data, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=30) as reply:
            return json.load(reply)


@contextmanager
def stage(folder: Path, *, with_postgres: bool) -> Iterator[Stage]:
    """Bring everything up, after a run in this process without any fault."""
    models = folder / "models"
    models.mkdir(parents=True)
    config = tiny_pair(models)
    del config["method"], config["seed"]
    config |= {"steps": STEPS, "checkpoints": {"every": 10, "keep_last": 1, "keep_best": 1}}
    config["grid"] = {"combinations": [["a", "b"]], "methods": ["gspo", "hacpo"], "seeds": [0]}
    grid = folder / "grid.yaml"
    grid.write_text(yaml.safe_dump(config))
    undisturbed = run_undisturbed(folder / "undisturbed", grid)
    home = folder / "home"
    with _registry(folder, with_postgres) as (url, postgres):
        settings = {"HACPO_LEASE_SECONDS": str(LEASE_SECONDS), "HACPO_REGISTRY_URL": url}
        with platform(home, **settings) as env:
            # Served the whole time by one run, so that its start is not part of every wait.
            yield Stage(home, env, grid, undisturbed, postgres)


@contextmanager
def _registry(folder: Path, with_postgres: bool) -> Iterator[tuple[str, OwnPostgres | None]]:
    if with_postgres:
        with own_postgres() as server:
            yield server.url, server
    else:
        yield f"sqlite:///{folder}/home/registry.db", None


def run_undisturbed(home: Path, grid: Path) -> dict[str, Any]:
    """The results of every cell, trained in this process."""
    before = os.environ.get("HACPO_HOME")
    os.environ["HACPO_HOME"] = str(home)
    try:
        with Registry.open(f"sqlite:///{home}/registry.db") as registry:
            specs = expand(load_grid(grid), home)
            registry.register_sweep("undisturbed", owner="", config={}, cells=specs)
            while claim := claim_cell(registry):
                work_on(registry, claim, offline=True)
            return {spec.key: results(registry, home, spec.key) for spec in specs}
    finally:
        if before is None:
            del os.environ["HACPO_HOME"]
        else:
            os.environ["HACPO_HOME"] = before


def results(registry: Registry, home: Path, key: str) -> Any:
    """What must not depend on faults: weights, optimizers, rewards, scores, costs."""
    last = home / "runs" / run_id_of(key) / "checkpoints" / f"{STEPS:06d}"
    files = {
        str(path.relative_to(last)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(last.rglob("*"))
        if path.is_file()
    }
    cell = registry.cell(key)
    scores = [
        (agent, step, registry.problem_scores(key, agent=agent, step=step, task=task, protocol=p))
        for agent in cell.cell.agents
        for step in (0, STEPS)
        for task, p in (("held_out", "avg@2"), ("held_out", "greedy"))
    ]
    steps = [(row.step, row.agent, row.reward_mean, row.tokens) for row in registry.step_rows(key)]
    return files, steps, scores


def wait_for(condition: Any, seconds: float, what: str) -> Any:
    """The first true value of `condition()`."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:.0f} s: {what}")
        time.sleep(0.5)
    return found
