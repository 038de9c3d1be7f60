"""`hacpo cell`: what one cell logged, and the same cell with other settings."""

from typing import Annotated

import typer

from hacpo.cli.errors import examples
from hacpo.cli.output import Json, Settings, console, print_json
from hacpo.cli.stored import find_run, open_registry
from hacpo.errors import ConfigError, DataError, RegistryError

LOGS_EXAMPLES = examples(
    'hacpo cell logs "hacpo a+b s0"',
    "hacpo cell logs 3f2a --tail 20",
    note="A cell is named by its label, its key or the start of its key.",
)
CLONE_EXAMPLES = examples(
    'hacpo cell clone "hacpo a+b s0" --set update.learning_rate=1e-6',
    'hacpo cell clone "hacpo a+b s0" --set seed=7 --sweep embedded',
)
Cell = Annotated[str, typer.Argument(metavar="CELL", help="Label, key or start of a key.")]


def logs(
    cell: Cell,
    tail: Annotated[
        int | None, typer.Option(min=1, metavar="LINES", help="Only the last lines.")
    ] = None,
    json: Json = False,
) -> None:
    """Print what was logged while a cell ran, over all its attempts on this machine."""
    from hacpo.work import LOG_NAME

    path = find_run(cell) / LOG_NAME
    if not path.exists():
        raise DataError(f"{cell}: there is no {path}: it has not begun on this machine")
    lines = path.read_text(errors="replace").splitlines()
    shown = lines[-tail:] if tail else lines
    if json:
        print_json({"file": path, "lines": shown})
    else:
        print("\n".join(shown))


def clone(
    cell: Cell,
    set_: Settings = None,
    sweep: Annotated[
        str | None, typer.Option(help="Sweep that gets the new cell.  [default: clones]")
    ] = None,
    json: Json = False,
) -> None:
    """Queue a cell again with other settings; the first one stays as it is."""
    import getpass

    from hacpo.cells import run_cell_spec
    from hacpo.places import home
    from hacpo.preflight import preflight
    from hacpo.presets import load_run
    from hacpo.registry import CANCELLED, PAUSE, PAUSED, RUN

    if not set_:
        raise ConfigError("nothing would differ: name what is to, with --set KEY=VALUE")
    with open_registry() as registry:
        known = registry.cell(cell)
        config = load_run(known.config, set_)
        changed = ", ".join(setting for setting in set_ if not setting.startswith("seed="))
        column = f"{known.cell.method} {changed}".strip()
        spec = run_cell_spec(config, home(), column=column)
        if spec.key == known.cell.key:
            raise ConfigError(
                f"{known.cell.label} would not come out differently: {', '.join(set_)} "
                f"is not read by method {config.method}, or is what it has"
            )
        preflight(config, home())
        name = sweep or "clones"
        if sweep is not None:
            registry.sweep(sweep)  # one that exists
        wanted = {row.name: row.wanted for row in registry.sweeps()}.get(name, RUN)
        if wanted != RUN:
            raise RegistryError(
                f"sweep {name!r} is {PAUSED if wanted == PAUSE else CANCELLED}, so it would not "
                f"start: `hacpo sweep resume {name}` first, or name another with --sweep"
            )
        counts = registry.register_sweep(
            name, owner=getpass.getuser(), config={}, cells=[spec], replace=False
        )
    if json:
        print_json({"key": spec.key, "label": spec.label, "sweep": name, "counts": counts})
    else:
        console().print(f"{spec.label} ({spec.key[:8]}) in sweep {name}: {counts}")
