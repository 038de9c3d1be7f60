"""What the registry's tests are made of; the processes that they spawn import only this."""

import multiprocessing
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from typing import Any

import pytest

from hacpo.errors import RegistryError
from hacpo.registry import Registry
from hacpo.types import AgentStep, CellSpec, Evaluation, ProblemScore, StepSummary


class FakeClock:
    """Time that passes only when told."""

    def __init__(self) -> None:
        self.time = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.time

    def advance(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)


def spec(
    key: str,
    agents: str = "ab",
    *,
    label: str | None = None,
    method: str = "hacpo",
    threads: int = 1,
    combination: str | None = None,
    gpus: int = 1,
) -> CellSpec:
    """A cell of agents with one-letter names; identity is the letter, doubled."""
    return CellSpec(
        key=key,
        label=label or f"{method} {'+'.join(agents)} {key}",
        method=method,
        seed=0,
        combination=combination or "+".join(agents),
        agents={a: {"model": f"model-{a}", "identity": a * 2} for a in agents},
        config={"z": 1, "a": [1.5, None], "threads": threads},
        rollouts=128,
        gpus=gpus,
    )


def submit(registry: Registry, *keys: str, name: str = "sweep") -> None:
    registry.register_sweep(name, owner="ann", config={}, cells=[spec(key) for key in keys])


def summary(step: int, rewards: dict[str, float], *, rollouts: int = 64) -> StepSummary:
    agents = {
        name: AgentStep(
            agent=name, reward_mean=reward, capability=0.5, rollouts=rollouts, tokens=1000
        )
        for name, reward in rewards.items()
    }
    return StepSummary(run_id="run", step=step, agents=agents, seconds=2.0)


def evaluation(
    agent: str = "a", step: int = 0, *, mean: float = 0.25, scores: list[float] | None = None
) -> Evaluation:
    return Evaluation(
        agent=agent,
        step=step,
        task="held_out",
        protocol="avg@2",
        mean=mean,
        problems=[
            ProblemScore(problem_id="p2", scores=scores or [1.0, 0.0]),
            ProblemScore(problem_id="p1", scores=[0.0, 0.0]),
        ],
        counts={"correct": 1, "wrong": 3},
    )


def in_processes(count: int, work: Callable[..., None], *arguments: object) -> list[Any]:
    """Run `work(*arguments, barrier, results)` in new processes; what they put there."""
    spawn = multiprocessing.get_context("spawn")
    barrier, results = spawn.Barrier(count), spawn.Queue()
    given = (*arguments, barrier, results)
    processes = [spawn.Process(target=work, args=given) for _ in range(count)]
    for process in processes:
        process.start()
    found = [results.get(timeout=400) for _ in processes]
    for process in processes:
        process.join()
    return found


def claim_all(url: str, start: Barrier, results: "Queue[list[str]]") -> None:
    """Claim and finish cells until none is left."""
    with Registry.open(url) as registry:
        start.wait(60)
        claimed = []
        registry.wait_for_database(60)
        while claim := registry.claim("worker", host="box", pid=0):
            claimed.append(claim.cell_key)
            registry.finish(claim)
    results.put(claimed)


def open_and_count(url: str, start: Barrier, results: "Queue[int]") -> None:
    start.wait(60)
    with Registry.open(url) as registry:
        results.put(len(registry.sweeps()))


def refusal(url: str) -> str:
    """The error of opening it, which must be one line."""
    with pytest.raises(RegistryError) as caught:
        Registry.open(url)
    message = str(caught.value)
    assert "\n" not in message
    assert "Traceback" not in message
    assert caught.value.__context__ is None or caught.value.__suppress_context__
    return message
