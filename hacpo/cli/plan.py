"""`hacpo plan`: what a run will take in memory and time, before it is started."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from hacpo.cli.errors import examples, say
from hacpo.cli.output import Json, Settings, console, plain_table, print_json

if TYPE_CHECKING:
    from rich.console import Console

    from hacpo.plan import Plan

EXAMPLES = examples(
    "hacpo plan configs/embedded/pair.yaml",
    "hacpo plan configs/real/smollm2+gemma3.yaml --set update.micro_tokens=4096",
    "hacpo plan configs/embedded/pair.yaml --set method=gspo --agent a --json",
    note="It runs small steps of the config (some seconds to minutes) and remembers what they took "
    "on this machine. A run that cannot fit is refused, with the number that must change.",
)
GB = 1 << 30


def plan(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="A run's YAML file.")],
    set_: Settings = None,
    agent: Annotated[
        str | None,
        typer.Option(metavar="ID", help="This agent alone (grpo, gspo, gspo_xK, initial)."),
    ] = None,
    calibration: Annotated[
        bool,
        typer.Option(
            "--calibration/--no-calibration", help="Measure small steps; without, memory only."
        ),
    ] = True,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Measure again what was measured before.")
    ] = False,
    json: Json = False,
) -> None:
    """Predict a run's memory, rollouts, tokens and time; exit code 2 if it cannot fit."""
    from hacpo.presets import load_run

    run_config = load_run(config, set_ or [], agent)  # what is wrong with it is told at once

    from hacpo.plan import make_plan

    made = make_plan(run_config, measure=calibration, fresh=fresh, tell=say)
    if json:
        print_json(made)
        return
    out = console()
    _show_memory(out, made)
    _show_time(out, made)
    if run_config.evaluate.benchmarks:
        out.print(f"time of benchmarks is not in it: {', '.join(run_config.evaluate.benchmarks)}")


def _show_memory(out: "Console", made: "Plan") -> None:
    columns = [
        "parameters",
        "weights",
        "optimizer",
        "gradients",
        "activations",
        "tokens",
        "sampling",
    ]
    more = [
        name
        for name in ("initial", "engine")
        if any(getattr(agent, name) for agent in made.agents.values())
    ]
    table = plain_table("agent", *columns, *more, numbers=(*columns, *more))
    for name, agent in made.agents.items():
        table.add_row(
            Text(name),
            f"{agent.parameters:,}",
            _size(agent.weights),
            _size(agent.optimizer),
            _size(agent.gradients),
            _size(agent.activations),
            f"{agent.micro_tokens:,}",
            _size(agent.cache),
            *(_size(getattr(agent, column)) for column in more),
        )
    out.print(Text(f"{made.label}: memory if every response is as long as allowed"))
    out.print(table)
    for place in made.places:
        out.print(
            f"{place.name}: needs {_size(place.needed)} of {_size(place.available)}"
            f" ({_size(made.process)} is the process itself)"
        )
    if made.expected is not None:
        out.print(f"expected peak, with responses as long as they are now: {_size(made.expected)}")


def _show_time(out: "Console", made: "Plan") -> None:
    if made.seconds is None:
        out.print(f"rollouts: {made.rollouts:,} in {made.steps} steps")
        return
    seconds = made.seconds
    columns = ("rollouts", "tokens", "reward", "cut, %", "no signal, %")
    times = ("sample, s", "grade, s", "update, s", "evaluate, s")
    table = plain_table("agent", *columns, *times, numbers=(*columns, *times))
    for name, agent in seconds.agents.items():
        table.add_row(
            Text(name),
            f"{agent.rollouts:,}",
            f"{agent.tokens:,.0f}",
            "-" if agent.reward is None else f"{agent.reward:.2f}",
            f"{100 * agent.truncated:.0f}",
            f"{100 * agent.uniform:.0f}",
            *(f"{t:.2f}" for t in (agent.rollout, agent.verify, agent.update, agent.evaluation)),
        )
    tokens = sum(agent.tokens for agent in seconds.agents.values()) * made.steps
    measured = "measured before" if made.calibrated_before else "measured now"
    out.print(Text(f"one step of each agent, and one evaluation ({measured})"))
    out.print(table)
    out.print(f"rollouts: {made.rollouts:,} in {made.steps} steps, {tokens:,.0f} tokens")
    out.print(f"step: {seconds.step:.2f} s, {seconds.other:.2f} s of it for files and metrics")
    out.print(
        f"total: {_time(seconds.total)} = {made.steps} steps {_time(made.steps * seconds.step)}"
        f" + evaluations {_time(seconds.evaluations)} + checkpoints {_time(seconds.checkpoints)}"
        f" + loading {_time(seconds.load)}"
    )


def _size(size: int) -> str:
    return f"{size / GB:.2f} GB" if size >= GB / 10 else f"{size / (1 << 20):.1f} MB"


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
