"""Times of the registry at 10,000 cells x 10 evaluations, on SQLite or PostgreSQL.

    python benchmarks/registry.py [URL]      # default: a SQLite file in a temporary folder

Milliseconds, median of 9 calls, each in an open registry: what `hacpo status`, `hacpo sweep show`,
`hacpo queue` and `hacpo report` ask; then the registration of a new sweep of 1,000 cells.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import insert, update

from hacpo.registry import Registry
from hacpo.registry.models import Cell, Cost, EvaluationProblem, EvaluationRecord, Step
from hacpo.types import CellSpec

SWEEPS, CELLS, TASKS, PROBLEMS, STEPS = 10, 1000, 5, 8, 20
AGENTS = ("a", "b")
GOAL_MS, GOAL_REGISTER_S = 200, 10


def specs(sweep: int, cells: int) -> list[CellSpec]:
    return [
        CellSpec(
            key=f"{sweep:04}{i:060}",
            label=f"hacpo a+b {sweep} s{i}",
            method="hacpo",
            seed=i,
            combination="a+b",
            agents={agent: {"model": agent, "identity": agent * 8} for agent in AGENTS},
            config={"steps": STEPS, "filler": "x" * 2000},  # as large as a real one
            rollouts=1280,
        )
        for i in range(cells)
    ]


def fill(registry: Registry) -> None:
    for sweep in range(SWEEPS):
        registry.register_sweep(
            f"sweep-{sweep}", owner=f"owner-{sweep % 3}", config={}, cells=specs(sweep, CELLS)
        )
    now = datetime.now(UTC)
    with registry._database.writing() as connection:
        count = SWEEPS * CELLS
        for first in range(1, count + 1, 500):
            ids = range(first, min(first + 500, count + 1))
            evaluations = [
                {
                    **{"cell_id": i, "agent": agent, "step": STEPS, "task": f"task-{task}"},
                    **{"protocol": "avg@8", "mean": 0.5, "counts": {"correct": 4}, "created": now},
                }
                for i in ids
                for agent in AGENTS
                for task in range(TASKS)
            ]
            connection.execute(insert(EvaluationRecord), evaluations)
            steps = [
                {
                    **{"cell_id": i, "step": step, "agent": agent, "reward_mean": 0.5},
                    **{"capability": 0.5, "rollouts": 64, "tokens": 999, "seconds": 1.0},
                }
                for i in ids
                for step in range(STEPS)
                for agent in AGENTS
            ]
            connection.execute(insert(Step), steps)
            costs = [
                {
                    **{"cell_id": i, "agent": agent, "rollouts_generated": 1280},
                    **{"rollouts_consumed": 2560, "tokens": 9999, "device_seconds": 60.0},
                }
                for i in ids
                for agent in AGENTS
            ]
            connection.execute(insert(Cost), costs)
        total = count * len(AGENTS) * TASKS
        for first in range(1, total + 1, 2000):
            problems = [
                {"evaluation_id": e, "position": p, "problem_id": f"p{p}", "scores": [1.0, 0.0]}
                for e in range(first, min(first + 2000, total + 1))
                for p in range(PROBLEMS)
            ]
            connection.execute(insert(EvaluationProblem), problems)
        # Most are done; the rest waits.
        done = update(Cell).where(Cell.id % 10 != 0)
        connection.execute(done.values(state="done", steps_done=STEPS, steps_total=STEPS))


def median_ms(call: Callable[[], Any]) -> float:
    times = []
    for _ in range(9):
        started = time.perf_counter()
        call()
        times.append(1000 * (time.perf_counter() - started))
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", nargs="?")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = asked.url or f"sqlite:///{folder}/registry.db"
        with Registry.open(url) as registry:
            started = time.perf_counter()
            fill(registry)
            print(f"{registry.name}: filled in {time.perf_counter() - started:.0f} s")
            calls: dict[str, Callable[[], Any]] = {
                "status: sweeps()": registry.sweeps,
                "sweep show: sweep(name), 1,000 cells": lambda: registry.sweep("sweep-5"),
                "report: evaluations(name), 10,000": lambda: registry.evaluations("sweep-5"),
                "report: costs(name), 2,000": lambda: registry.costs("sweep-5"),
                "queue(20)": lambda: registry.queue(20),
                "queued_by_gpus()": registry.queued_by_gpus,
                "cell(key)": lambda: registry.cell(specs(5, 1)[0].key),
            }
            for name, call in calls.items():
                took = median_ms(call)
                print(f"  {name}: {took:.0f} ms{'' if took < GOAL_MS else '  OVER THE GOAL'}")
            started = time.perf_counter()
            registry.register_sweep("new", owner="ann", config={}, cells=specs(99, 1000))
            took = time.perf_counter() - started
            print(f"  a new sweep of 1,000 cells: {took:.2f} s (goal {GOAL_REGISTER_S})")


if __name__ == "__main__":
    main()
