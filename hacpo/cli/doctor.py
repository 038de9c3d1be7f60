"""`hacpo doctor`: what is ready, and what to do about what is not."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hacpo.cli.errors import FIXABLE, examples
from hacpo.cli.output import Json, console, print_json

if TYPE_CHECKING:
    from hacpo.doctor.check import Check

EXAMPLES = examples(
    "hacpo doctor                                  # this machine and its services",
    "hacpo doctor configs/real/smollm2+gemma3.yaml # and what this config needs",
    "hacpo doctor --json | jq '.checks[] | select(.ok | not)'",
)


def doctor(
    config: Annotated[
        Path | None, typer.Argument(metavar="[CONFIG]", help="Also look at what it needs.")
    ] = None,
    json: Json = False,
) -> None:
    """Check machine, services and a config; exit code 2 if there is something to do."""
    checks = []
    for check in _checks(config):
        checks.append(check)
        if not json:
            mark = "ok   " if check.ok else "to do"
            console().print(f"{mark}  {check.name:<16} {check.text}", soft_wrap=True)
    if json:
        print_json({"ok": all(check.ok for check in checks), "checks": checks})
    if not all(check.ok for check in checks):
        raise typer.Exit(FIXABLE)


def _checks(path: Path | None) -> Iterator["Check"]:
    from hacpo.doctor.check import run_check
    from hacpo.doctor.machine import environment_checks, machine_checks
    from hacpo.doctor.services import service_checks
    from hacpo.doctor.work import read_config, work_checks
    from hacpo.places import home

    yield from machine_checks(home())
    config = None
    if path is not None:
        read = []

        def look() -> str:
            read.append(read_config(path))
            return str(path)

        yield run_check("config", look)
        config = read[0] if read else None
    yield from service_checks(config.tracking.uri if config else None)
    if config is not None:
        yield from work_checks(config, home())
    yield from environment_checks(os.environ)
