"""`hacpo run`: one training in this process."""

import contextlib
import math
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from hacpo.cli.errors import INTERRUPTED, examples, say
from hacpo.cli.output import Json, Settings, console, plain_table, print_json
from hacpo.cli.progress import watching
from hacpo.cli.stored import find_registry
from hacpo.errors import RegistryError

if TYPE_CHECKING:
    from hacpo.api import Result
    from hacpo.registry import CellView
    from hacpo.types import CellSpec

EXAMPLES = examples(
    "hacpo run configs/embedded/pair.yaml",
    "hacpo run configs/embedded/pair.yaml --set steps=5 --set algorithm.floor=0.9",
    "hacpo run configs/embedded/pair.yaml --set method=gspo --agent a",
    note="`hacpo config` explains every key. Interrupted or killed, the same "
    "command goes on from the newest checkpoint; finished, it shows the result again.",
)


def run(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="A YAML file.")],
    set_: Settings = None,
    agent: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Train this agent alone (grpo, gspo, gspo_xK, initial)."),
    ] = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Keep metrics in the run's folder, not in MLflow.")
    ] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Forget an earlier result and train again.")
    ] = False,
    json: Json = False,
) -> None:
    """Train one config to its end, with live progress; ends with accuracies and the models."""
    cell = _cell(config, set_ or [], agent)
    steps_done = 0 if fresh else _announce(cell)
    started = time.monotonic()
    watcher = None
    try:
        with _terminable(), watching(cell.key, steps_done) as watcher:
            from hacpo.api import train

            result = train(config, overrides=set_ or [], agent=agent, offline=offline, fresh=fresh)
    except (KeyboardInterrupt, _Terminated) as stopped:
        done = watcher.steps_done if watcher else 0
        ended = isinstance(stopped, _Terminated)
        how = "ended by SIGTERM" if ended else "interrupted"
        say(f"{how} after {done} steps; run the same command again to resume")
        raise typer.Exit(128 + signal.SIGTERM if ended else INTERRUPTED) from None
    facts = _facts(result, time.monotonic() - started)
    if json:
        print_json(facts)
    else:
        _show(facts)


def _cell(config: Path, overrides: list[str], agent: str | None) -> "CellSpec":
    """The work asked for; what can be refused without torch is refused here, in a second."""
    from hacpo.presets import load_run

    run_config = load_run(config, overrides, agent)
    models = [each.model for each in run_config.agents.values()]
    packaged = [model for model in models if model.startswith("pypi:")]
    local = [model for model in models if Path(model).expanduser().is_dir()]
    if all(m.startswith("embedded:") or m in packaged or m in local for m in models):
        # Nothing from the hub: the only progress bar is ours. Read when transformers is imported.
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

    from hacpo.cells import run_cell_spec
    from hacpo.places import home
    from hacpo.preflight import check_writable

    check_writable(home())
    spec = run_cell_spec(run_config, home())
    if packaged:
        from hacpo.models.resolve import ensure_models

        ensure_models(packaged, home(), say)  # minutes, the first time: tell what takes them
    return spec


def _announce(cell: "CellSpec") -> int:
    """Say what is there already; returns the steps that are done."""
    earlier = _earlier(cell.key)
    if earlier is not None and earlier.state == "done":
        say(f"{cell.label} is done already (--fresh trains it again)")
        return earlier.steps_done
    if earlier is not None and earlier.steps_done:
        done = earlier.steps_done
        say(f"{cell.label} goes on from the newest checkpoint at or before step {done}")
        return done
    return 0


def _earlier(key: str) -> "CellView | None":
    """The cell as an earlier command left it."""
    registry = find_registry()
    if registry is None:
        return None
    with registry:
        try:
            return registry.cell(key).cell
        except RegistryError:  # an open registry says so of a key that it does not have
            return None


class _Terminated(SystemExit):
    """Whoever tidies up before an exit does so now, too."""


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM ends the run as Ctrl-C does: the cell is handed back, to be resumed."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise _Terminated

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _facts(result: "Result", seconds: float) -> dict[str, Any]:
    trained = result.config.rule != "initial"
    agents: dict[str, Any] = {}
    for name in result.config.agents:
        before = _means(result, name, 0)
        after = _means(result, name, None) if trained else {}
        model = str(result.model(name)) if trained else None
        agents[name] = {"before": before, "after": after, "model": model}
    return {
        "label": result.cell.label,
        "key": result.cell.key,
        "steps": result.config.steps if trained else 0,
        "seconds": seconds,
        "folder": str(result.folder),
        "agents": agents,
    }


def _means(result: "Result", agent: str, step: int | None) -> dict[str, float]:
    """Accuracy by protocol on the held-out problems, by `name protocol` on a benchmark."""
    held_out = {e.protocol: e.mean for e in result.evaluations(agent, step)}
    return held_out | {f"{e.task} {e.protocol}": e.mean for e in result.benchmarks(agent, step)}


def _show(facts: dict[str, Any]) -> None:
    out = console()
    table = plain_table(
        "agent", "protocol", "before, %", "after, %", numbers=("before, %", "after, %")
    )
    for name, agent in facts["agents"].items():
        for protocol, before in agent["before"].items():
            after = agent["after"].get(protocol)
            table.add_row(Text(name), protocol, _percent(before), _percent(after))
    out.print(Text(f"{facts['label']}: {facts['steps']} steps, accuracy"))
    if table.row_count:
        out.print(table)
    else:
        out.print("not evaluated: evaluate.samples is 0 and evaluate.greedy false")
    for name, agent in facts["agents"].items():
        if agent["model"]:
            out.print(Text(f"model {name}: {agent['model']}"), soft_wrap=True)


def _percent(value: float | None) -> str:
    return "-" if value is None or math.isnan(value) else f"{100 * value:.1f}"
