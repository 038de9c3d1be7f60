"""`python -m flows.follow FLOW_RUN_ID`: shows a grid's progress until it ends, then its table."""

import argparse
import math
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import State
from rich.console import Console
from rich.live import Live

from flows.links import prefect_url
from flows.progress import live, plain
from hacpo.errors import HacpoError
from hacpo.places import default_registry_url
from hacpo.registry import Registry, SweepView
from hacpo.tracking import curves_url

LOOK_SECONDS = 1.0
LINE_SECONDS = 10.0
CRASH_SECONDS = 30.0
"""A crash counts once it was one for so long: of a run that outlived its worker, the worker may
report one that is taken back (flows/orphan.py)."""


def follow(flow_run_id: UUID, console: Console) -> int:
    """Follow a run of hacpo-grid; 0 if every cell is done."""
    started, told = time.monotonic(), float("-inf")
    view = None
    display = Live(console=console, transient=True, auto_refresh=False)
    shown: AbstractContextManager[object] = display if console.is_terminal else nullcontext()
    with (
        Registry.open(default_registry_url()) as registry,
        get_client(sync_client=True) as client,
    ):
        with shown:
            for state in _until_over(client, flow_run_id):
                view = _sweep(registry, flow_run_id, view)
                elapsed = time.monotonic() - started
                if console.is_terminal:
                    display.update(live(view, elapsed) if view else _before(state), refresh=True)
                elif elapsed - told >= LINE_SECONDS:
                    told = elapsed
                    line = plain(view, elapsed) if view else _before(state)
                    console.print(line, markup=False, soft_wrap=True)
        view = _sweep(registry, flow_run_id, view)
        if view is not None:
            from hacpo.report import sweep_report  # not free to load

            console.print(sweep_report(registry, view.name).rich_table())
    if not state.is_completed():
        console.print(f"{state.name}: {state.message}", style="red", markup=False)
    console.print(f"Prefect: {prefect_url(str(flow_run_id))}", soft_wrap=True)
    if view is not None and view.mlflow_experiment_url:
        console.print(f"Curves:  {curves_url(view.mlflow_experiment_url)}", soft_wrap=True)
    return 0 if state.is_completed() else 1


def _until_over(client: SyncPrefectClient, flow_run_id: UUID) -> Iterator[State[object]]:
    """Its state at every look, the last time when it stays that."""
    crashed = math.inf
    while True:
        state = client.read_flow_run(flow_run_id).state
        assert state is not None
        crashed = min(crashed, time.monotonic()) if state.is_crashed() else math.inf
        yield state
        stays = not state.is_crashed() or time.monotonic() > crashed + CRASH_SECONDS
        if state.is_final() and stays:
            return
        time.sleep(LOOK_SECONDS)


def _sweep(registry: Registry, flow_run_id: UUID, known: SweepView | None) -> SweepView | None:
    """The sweep that the run registered; it stays ours if a later run submits it again."""
    if known is not None:
        return registry.sweep(known.name)
    for sweep in registry.sweeps():
        if sweep.prefect_flow_run_id == str(flow_run_id):
            return registry.sweep(sweep.name)
    return None


def _before(state: State[object]) -> str:
    """What to say before the sweep is registered."""
    if state.is_crashed():
        return f"{state.name}: {state.message}"
    return "checking the grid" if state.is_running() else "waiting for a worker of hacpo-control"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("flow_run_id", type=UUID)
    flow_run_id = parser.parse_args().flow_run_id
    console = Console(width=None if sys.stdout.isatty() else 140)
    try:
        return follow(flow_run_id, console)
    except HacpoError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(
            "\nThe sweep goes on. Follow it again: python -m flows.follow "
            f"{flow_run_id}; stop everything: bash infra/quickstart.sh --stop"
        )
        return 130


if __name__ == "__main__":
    sys.exit(main())
