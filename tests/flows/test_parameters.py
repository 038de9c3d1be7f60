"""The form that Prefect makes of the flows' parameters, and the tasks that it records."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from prefect import Task
from prefect.cache_policies import NO_CACHE
from prefect.utilities.callables import parameter_schema

from flows.experiment import hacpo_experiment
from flows.grid import hacpo_grid
from flows.phases import PREFECT
from flows.reconcile import hacpo_reconcile

FORM = Draft202012Validator(parameter_schema(hacpo_grid.fn).model_dump())


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"methods": ["gspo_xN", "gspo_x3", "initial", "hacpo"], "seeds": [0, 7], "steps": 2},
        {"overrides": ["algorithm.alpha=0", "algorithm.floor=null"], "runs": 8},
        {"config": "configs/embedded/full.yaml", "owner": "ada", "offline": True},
    ],
)
def test_takes(parameters: dict[str, Any]) -> None:
    assert list(FORM.iter_errors(parameters)) == []


@pytest.mark.parametrize(
    "parameters",
    [
        {"methods": ["ppo"]},
        {"methods": []},
        {"seeds": [-1]},
        {"seeds": []},
        {"steps": 0},
        {"overrides": ["alpha"]},
        {"runs": 0},
        {"cells_per_run": 0},
        {"name": "No Spaces"},
        {"priority": "high"},
        {"config": ""},
        {"offline": "maybe"},
    ],
)
def test_refuses(parameters: dict[str, Any]) -> None:
    assert list(FORM.iter_errors(parameters))


def test_every_parameter_is_described() -> None:
    for flow in (hacpo_grid, hacpo_experiment, hacpo_reconcile):
        properties = parameter_schema(flow.fn).model_dump()["properties"]
        assert all(field.get("description") for field in properties.values()), properties


def test_deployments_are_named_like_their_flows() -> None:
    declared = yaml.safe_load(Path("infra/prefect.yaml").read_text(encoding="utf-8"))
    names = [deployment["name"] for deployment in declared["deployments"]]
    assert names == [hacpo_grid.name, hacpo_experiment.name, hacpo_reconcile.name]


def test_phases_are_tasks_that_remember_nothing() -> None:
    for name, phase in PREFECT._asdict().items():
        assert isinstance(phase, Task)
        assert phase.name == name
        assert phase.cache_policy == NO_CACHE
        assert phase.persist_result is False
        assert phase.retries == 0
