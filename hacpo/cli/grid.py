"""`hacpo grid plan`: what a grid would do, before it does it."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from hacpo.cli.errors import examples, say
from hacpo.cli.output import Json, Settings, console, plain_table, print_json
from hacpo.cli.stored import find_registry

if TYPE_CHECKING:
    from hacpo.config import GridConfig
    from hacpo.plan.gpu import Estimate, GpuPlanner
    from hacpo.types import CellSpec

EXAMPLES = examples(
    "hacpo grid plan configs/embedded/grid.yaml",
    "hacpo grid plan configs/embedded/grid.yaml --set 'grid.seeds=[0,1,2]'",
    "hacpo grid plan configs/tables/table1.yaml --gpu h200 --response-tokens 800",
    note="To run it: prefect deployment run hacpo-grid",
)
NEW = "new"
_LEFT_OUT = "held-out evaluations are not in them; "


def plan(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="A grid's YAML file.")],
    gpu: Annotated[
        str | None,
        typer.Option(help="Kind of GPU to estimate for: a100, h100, h200 (device: cuda), b200."),
    ] = None,
    response_tokens: Annotated[
        int | None,
        typer.Option(min=1, help="Mean length of a response; default a quarter of its limit."),
    ] = None,
    set_: Settings = None,
    json: Json = False,
) -> None:
    """List a grid's cells, which of them are new, and the rollouts that those will sample.

    For a GPU also hours, estimated by arithmetic, and memory.
    """
    from hacpo.cells import expand
    from hacpo.inputs import ExpectedInputs
    from hacpo.places import home
    from hacpo.presets import load_grid

    grid = load_grid(config, set_ or [])
    inputs = ExpectedInputs(home())
    cells = expand(grid, home(), inputs)
    states = _states(cells)
    planner = _planner(grid, gpu, response_tokens)
    estimates = _estimates(cells, planner, inputs.missing)
    new = {cell.key: cell for cell in cells if states[cell.key] == NEW}.values()
    if json:
        print_json(_as_json(grid, cells, states, list(new), estimates, planner, inputs.missing))
        return
    numbers = ["rollouts", *(["tokens", "GPU hours", "GPU GB"] if planner else [])]
    table = plain_table("cell", "key", "state", *numbers, numbers=tuple(numbers))
    for cell in cells:
        table.add_row(
            Text(cell.label),
            cell.key[:8],
            states[cell.key],
            f"{cell.rollouts:,}",
            *(_estimated(estimates.get(cell.key)) if planner else []),
        )
    out = console()
    out.print(table)
    rollouts = sum(cell.rollouts for cell in new)
    out.print(f"{grid.name}: {len(states)} cells, {len(new)} new with {rollouts:,} rollouts")
    if planner is not None:
        _tell_estimate(grid, planner, [estimates[x.key] for x in new if x.key in estimates])
    _tell_missing(inputs.missing)


def _planner(
    grid: "GridConfig", gpu: str | None, response_tokens: int | None
) -> "GpuPlanner | None":
    """For a grid that asks for GPUs, or where one is named."""
    if gpu is None and not grid.device.startswith("cuda"):
        return None
    from hacpo.errors import ConfigError
    from hacpo.plan.gpu import GPUS, GpuPlanner

    kind = gpu or "h200"
    if kind not in GPUS:
        raise ConfigError(f"--gpu {kind}: unknown kind; known: {', '.join(GPUS)}")
    if grid.device == "cpu":
        raise ConfigError("--gpu: the grid's device is cpu")
    untrained_apart = "initial" in grid.grid.methods
    return GpuPlanner(GPUS[kind], response_tokens, untrained_apart=untrained_apart, tell=say)


def _estimates(
    cells: "list[CellSpec]", planner: "GpuPlanner | None", missing: dict[str, str]
) -> "dict[str, Estimate]":
    """Cell key -> its estimate; without those of models whose shape is not to be had."""
    if planner is None:
        return {}
    from hacpo.config import RunConfig
    from hacpo.errors import DataError

    found = {}
    for cell in {cell.key: cell for cell in cells}.values():
        try:
            found[cell.key] = planner.estimate(RunConfig.model_validate(cell.config))
        except DataError:
            if not missing.keys() & {agent["model"] for agent in cell.agents.values()}:
                raise
    return found


def _estimated(estimate: "Estimate | None") -> list[str]:
    if estimate is None:
        return ["-"] * 3
    memory = estimate.memory / (1 << 30)
    return [f"{estimate.tokens:,}", f"{estimate.hours:,.1f}", f"{memory:.0f}"]


def _tell_estimate(grid: "GridConfig", planner: "GpuPlanner", new: "list[Estimate]") -> None:
    from hacpo.plan.gpu import LEARNING, SAMPLING, SHARE_OF_LIMIT

    gpu, out = planner.gpu, console()
    hours, tokens = sum(one.hours for one in new), sum(one.tokens for one in new)
    out.print(f"new: {tokens:,} tokens to sample in training, {hours:,.0f} GPU hours")
    evaluates = grid.evaluate.samples > 0 or grid.evaluate.greedy
    length = planner.response_tokens or f"{SHARE_OF_LIMIT:.0%} of its limit"
    out.print(
        f"hours are arithmetic, not measured: a response has {length} tokens, {gpu.name} works at "
        f"{SAMPLING:.0%} of its {gpu.flops / 1e12:.0f} Tflop/s while it samples and {LEARNING:.0%} "
        f"while it learns; {_LEFT_OUT * evaluates}memory is for responses as long as allowed",
        soft_wrap=True,
    )
    too_large = sum(one.memory > gpu.memory for one in new)
    if too_large:
        out.print(
            f"{too_large} need more than the {gpu.memory >> 30} GB of one {gpu.name}: lower "
            "update.micro_tokens or vllm.gpu_memory_fraction, set lora, or take a larger --gpu",
            soft_wrap=True,
        )


def _tell_missing(missing: dict[str, str]) -> None:
    files = sorted(what.removeprefix("data:") for what in missing if what.startswith("data:"))
    models = sorted(what for what in missing if not what.startswith("data:"))
    write = partial(console().print, soft_wrap=True)
    if files:
        write(Text(f"not here yet: {', '.join(files)}; `hacpo data fetch all` gets them"))
    for model in models:
        write(Text(f"not here yet: {missing[model].removeprefix('agent model ')}"))
    if missing:
        write("until they are, keys of their cells are not final, and these count as new")


def _as_json(
    grid: "GridConfig",
    cells: "list[CellSpec]",
    states: dict[str, str],
    new: "list[CellSpec]",
    estimates: "dict[str, Estimate]",
    planner: "GpuPlanner | None",
    missing: dict[str, str],
) -> dict[str, Any]:
    return {
        "name": grid.name,
        "cells": [
            {
                "key": cell.key,
                "label": cell.label,
                "state": states[cell.key],
                "method": cell.method,
                "combination": cell.combination,
                "agents": cell.agents,
                "seed": cell.seed,
                "steps": cell.config["steps"],
                "rollouts": cell.rollouts,
                **({"estimate": estimates[cell.key]} if cell.key in estimates else {}),
            }
            for cell in cells
        ],
        "new": len(new),
        "rollouts_of_new": sum(cell.rollouts for cell in new),
        "gpu": planner.gpu if planner else None,
        "gpu_hours_of_new": sum(estimates[x.key].hours for x in new if x.key in estimates),
        "missing": missing,
    }


def _states(cells: "list[CellSpec]") -> dict[str, str]:
    """Cell key -> its state in the registry, or `new`."""
    new = {cell.key: NEW for cell in cells}
    registry = find_registry()
    if registry is None:
        return new
    with registry:
        return new | registry.cell_states(list(new))
