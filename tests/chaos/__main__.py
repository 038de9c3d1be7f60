"""`python -m tests.chaos --runs 30 [--postgres] [--outage 120]`: a line for each fault survived."""

import argparse
import sys
import tempfile
import time
from pathlib import Path
from random import Random

from tests.chaos.check import (
    check_mlflow,
    check_nothing_is_left,
    check_results,
    wait_until_done,
)
from tests.chaos.faults import FAULTS
from tests.chaos.stage import STEPS, Stage, stage, wait_for


def strike(stage: Stage, name: str, fault: str, random: Random) -> str:
    """Queue a sweep, let a fault strike at a random moment, and check everything."""
    stage.submit(name)
    moment = random.randrange(1, 2 * STEPS)
    pause = random.uniform(0, 1)

    def reached() -> bool:
        cells = stage.view(name).cells
        running = any(cell.state == "running" for cell in cells)
        return running and sum(cell.steps_done for cell in cells) >= moment

    wait_for(reached, 400, f"{name} comes to step {moment}")
    time.sleep(pause)
    try:
        told = FAULTS[fault](stage, random)
    except AssertionError as error:  # between two cells: nothing to strike
        told = f"missed ({error})"
    wait_until_done(stage, name)
    check_results(stage, name)
    check_nothing_is_left(stage)
    check_mlflow(stage, name)
    attempts = [cell.attempts for cell in stage.view(name).cells]
    return f"{told} after {moment} steps; attempts {attempts}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--postgres", action="store_true", help="the registry on PostgreSQL")
    parser.add_argument("--only", choices=sorted(FAULTS), nargs="+")
    parser.add_argument("--outage", type=float, help="seconds that a server is away")
    asked = parser.parse_args()
    if "postgres" in (asked.only or []) and not asked.postgres:
        parser.error("--only postgres needs --postgres")
    kinds = asked.only or [k for k in FAULTS if asked.postgres or k != "postgres"]
    database = "PostgreSQL" if asked.postgres else "SQLite"
    failed = missed = 0
    with tempfile.TemporaryDirectory(prefix="chaos-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        with stage(Path(folder), with_postgres=asked.postgres) as platform:
            if asked.outage is not None:
                platform.outage = (asked.outage, asked.outage)
            for run in range(asked.runs):
                random = Random(f"{asked.seed} {run}")
                kind = kinds[run % len(kinds)]
                started = time.monotonic()
                try:
                    told = "ok: " + strike(platform, f"chaos-{run}", kind, random)
                    missed += "missed" in told
                except AssertionError as error:
                    failed += 1
                    told = f"FAILED: {error}"
                seconds = time.monotonic() - started
                print(f"{database} {run:3} {kind:9} {seconds:4.0f} s  {told}", flush=True)
    print(
        f"{database}: {asked.runs - failed - missed} of {asked.runs} survived, {failed} failed, "
        f"{missed} had nothing to strike (seed {asked.seed})"
    )
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
