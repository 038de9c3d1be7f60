"""What orchestration costs: the same training bare, and with Prefect, MLflow and registry.

    bash infra/quickstart.sh && source .hacpo/env && python benchmarks/overhead.py

Both run in this process, in turns, on the default pair of embedded agents. Compared is the time of
the step loop; what comes before and after it is reported beside it.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

OVERRIDES = ["evaluate.samples=0", "evaluate.greedy=false", "tracking.kl_every=0"]


def bare(steps: int, seed: int) -> dict[str, float]:
    """The library's own functions; metrics go to files only."""
    from hacpo.loop import train_run
    from hacpo.presets import load_run
    from hacpo.run import close_run, start_run

    config = load_run("configs/embedded/pair.yaml", [*OVERRIDES, f"steps={steps}", f"seed={seed}"])
    begun = time.monotonic()
    start_run(f"bare-{seed}", config)
    opened = time.monotonic()
    train_run(f"bare-{seed}")
    trained = time.monotonic()
    close_run(f"bare-{seed}")
    return {"loop": trained - opened, "before": opened - begun, "after": time.monotonic() - trained}


def orchestrated(steps: int, seed: int) -> dict[str, float]:
    """A cell of a Prefect flow: tasks, MLflow's sender and the registry's writes."""
    from prefect import flow

    import hacpo.work
    from flows.phases import PREFECT
    from hacpo.cells import run_cell_spec
    from hacpo.places import home
    from hacpo.presets import load_run
    from hacpo.registry import Registry
    from hacpo.work import claim_cell, work_on

    config = load_run("configs/embedded/pair.yaml", [*OVERRIDES, f"steps={steps}", f"seed={seed}"])
    config = config.model_copy(update={"name": "benchmark-overhead"})
    cell = run_cell_spec(config, home())
    measured: dict[str, float] = {}
    train_run = hacpo.work.train_run

    def timed(*args: Any) -> None:
        started = time.monotonic()
        train_run(*args)
        measured["loop"] = time.monotonic() - started
        measured["before"] = started - begun

    @flow(name="benchmark-overhead")
    def benchmark() -> None:
        with Registry.open(f"sqlite:///{home()}/registry.db") as registry:
            registry.register_sweep("benchmark-overhead", owner="", config={}, cells=[cell])
            claim = claim_cell(registry, cell_key=cell.key)
            assert claim is not None
            work_on(registry, claim, phases=PREFECT)

    hacpo.work.train_run = timed
    begun = time.monotonic()
    try:
        benchmark()
    finally:
        hacpo.work.train_run = train_run
    measured["after"] = time.monotonic() - begun - measured["before"] - measured["loop"]
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=8)
    options = parser.parse_args()
    for variable in ("PREFECT_API_URL", "MLFLOW_TRACKING_URI"):
        if variable not in os.environ:
            sys.exit(f"{variable} is not set: bash infra/quickstart.sh, then source .hacpo/env")
    agents = Path(os.environ.get("HACPO_HOME", ".hacpo")).absolute() / "agents"
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "agents").symlink_to(agents)
        os.environ["HACPO_HOME"] = folder
        kinds: dict[str, Callable[[int, int], dict[str, float]]] = {
            "bare": bare,
            "orchestrated": orchestrated,
        }
        for run in kinds.values():  # imports, first connections
            run(2, 1000)
        times: dict[str, list[dict[str, float]]] = {name: [] for name in kinds}
        for repeat in range(options.repeats):
            # In turns of changing order (ABBA), so that a drift of the machine cancels out.
            order = list(kinds.items())[:: 1 if repeat % 2 == 0 else -1]
            for name, run in order:
                times[name].append(run(options.steps, repeat))
                print(name, {k: round(v, 2) for k, v in times[name][-1].items()}, flush=True)
    ratios = [
        after["loop"] / before["loop"]
        for before, after in zip(times["bare"], times["orchestrated"], strict=True)
    ]
    medians = {
        name: {part: statistics.median(t[part] for t in some) for part in some[0]}
        for name, some in times.items()
    }
    print(
        json.dumps(
            {
                "machine": f"{os.cpu_count()} cores, {platform.machine()}",
                "steps": options.steps,
                "median_seconds": medians,
                "ratio_of_loops": statistics.median(ratios),
                "ratios": ratios,
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
