"""What the work pools give their runs, as Prefect's worker reads it."""

import asyncio
import runpy
import shlex
from pathlib import Path
from typing import Any

import pytest
from prefect.workers.process import ProcessJobConfiguration

from tests.servers import CHECKOUT


def configured(pool: str, **variables: Any) -> ProcessJobConfiguration:
    pools = runpy.run_path(str(CHECKOUT / "infra" / "pools.py"))
    template = pools["template"](pools["GPUS"][pool])
    return asyncio.run(ProcessJobConfiguration.from_template_and_values(template, variables))


@pytest.mark.parametrize(
    ("pool", "variables", "gpus"),
    [
        ("hacpo-cells", {}, "1"),
        ("hacpo-cells", {"gpus": 4}, "4"),
        ("hacpo-control", {}, "0"),
        ("hacpo-cells", {"command": "python -m prefect.engine"}, "1"),
    ],
)
def test_every_run_starts_on_as_many_slots_as_it_asks_for(
    pool: str, variables: dict[str, Any], gpus: str
) -> None:
    command = configured(pool, **variables).command
    assert command is not None
    engine = ["python", "-m", "prefect.engine"]
    assert shlex.split(command) == ["python", "-m", "flows.slots", gpus, "--", *engine]


def test_prefects_own_variables_still_count(tmp_path: Path) -> None:
    found = configured("hacpo-cells", env={"A": "b"}, working_dir=str(tmp_path))
    assert found.env["A"] == "b"
    assert found.working_dir == tmp_path
