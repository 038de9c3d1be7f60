import copy
import json
import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from hacpo.errors import DataError
from hacpo.registry import Registry
from tests.registry.helpers import evaluation, spec, submit, summary


@pytest.fixture
def other(tmp_path: Path, clock) -> Iterator[Registry]:
    with Registry.open(f"sqlite:///{tmp_path}/other.db", clock=clock) as opened:
        yield opened


def train(registry: Registry, key: str, mean: float = 0.25) -> None:
    claim = registry.claim("h", host="box", pid=1, cell_key=key)
    assert claim is not None
    registry.start_step_total(claim, 1)
    registry.record_step(claim, summary(0, {"a": 0.5, "b": math.nan}))
    registry.record_evaluation(claim, evaluation("a", 1, mean=mean), identity_key="key")
    registry.record_evaluation(claim, evaluation("b", 1, mean=math.nan, scores=[math.nan, 1.0]))
    registry.record_cost(
        claim, "a", rollouts_generated=64, rollouts_consumed=128, tokens=9, device_seconds=1.5
    )
    registry.finish(claim)


def test_results_go_along_and_come_out_the_same(registry, other):
    submit(registry, "k1", "k2")
    train(registry, "k1")
    data = json.loads(json.dumps(registry.export_sweep("sweep"), allow_nan=False))

    counts = other.import_sweep(data)

    assert (counts.taken, counts.kept, counts.differing, counts.queued) == (1, 0, (), 1)
    assert other.export_sweep("sweep") == data
    here, there = registry.sweep("sweep"), other.sweep("sweep")
    assert [cell.state for cell in there.cells] == ["done", "queued"]
    assert there.cells[0].agents["a"].reward == here.cells[0].agents["a"].reward == 0.5
    assert math.isnan(other.step_rows("k1")[1].reward_mean)
    assert len(other.evaluations("sweep")) == len(registry.evaluations("sweep")) == 2
    assert other.costs("sweep")[0].rollouts_consumed == 128
    assert other.find_evaluation("key", task="held_out", protocol="avg@2", agent="a") is not None


def test_two_registries_merge(registry, other):
    submit(registry, "k1", "k2")
    submit(other, "k1", "k2")
    train(registry, "k1")
    train(other, "k2")
    counts = registry.import_sweep(other.export_sweep("sweep"))
    assert (counts.taken, counts.queued) == (1, 0)
    assert [cell.state for cell in registry.sweep("sweep").cells] == ["done", "done"]
    again = registry.import_sweep(other.export_sweep("sweep"))
    assert (again.taken, again.kept) == (0, 1)
    assert len(registry.sweep("sweep").cells) == 2


def test_a_different_result_of_the_same_cell_is_told_and_not_taken(registry, other):
    submit(registry, "k")
    submit(other, "k")
    train(registry, "k", mean=0.25)
    train(other, "k", mean=0.5)
    counts = registry.import_sweep(other.export_sweep("sweep"))
    assert counts.differing == ("hacpo a+b k",)
    assert registry.evaluations("sweep")[0].mean == 0.25


def test_a_running_cell_is_left_to_its_holder(registry, other, take):
    submit(registry, "k")
    submit(other, "k")
    train(other, "k")
    held = take()
    assert registry.import_sweep(other.export_sweep("sweep")).taken == 0
    registry.finish(held)


def test_a_sweep_can_be_imported_under_another_name(registry, other):
    other.register_sweep("sweep", owner="bob", config={"x": 1}, cells=[spec("k", gpus=2)])
    registry.import_sweep(other.export_sweep("sweep"), name="bobs")
    view = registry.sweep("bobs")
    assert (view.owner, view.config, view.cells[0].gpus) == ("bob", {"x": 1}, 2)


DAMAGE = [
    *["nothing", "list", "version", "cell", "steps", "empty", "agents", "identity", "seed"],
    *["state", "rollouts", "config", "results", "name", "key"],
]


@pytest.mark.parametrize("damage", DAMAGE)
def test_what_is_no_export_is_refused_and_nothing_is_written(registry, other, damage: str):
    submit(other, "k")
    train(other, "k")
    data = copy.deepcopy(other.export_sweep("sweep"))
    match damage:
        case "nothing":
            data = {}
        case "list":
            data = [data]
        case "version":
            data["version"] = 99
        case "cell":
            del data["cells"][0]["config"]
        case "steps":
            data["cells"][0]["steps"][0]["more"] = 1
        case "empty":
            data["cells"] = []
        case "agents":
            data["cells"][0]["agents"] = None
        case "identity":
            data["cells"][0]["agents"] = {"a": {}}
        case "seed":
            data["cells"][0]["seed"] = "x"
        case "state":
            data["cells"][0]["state"] = "zzz"
        case "rollouts":
            data["cells"][0]["steps"][0]["rollouts"] = "x"
        case "config":
            data["cells"][0]["config"] = None
        case "results":
            data["cells"][0] |= {"steps": [], "evaluations": []}
        case "name":
            data["sweep"]["name"] = "Bad Name/../x"
        case "key":
            data["cells"][0]["key"] = None
    with pytest.raises(DataError):
        registry.import_sweep(data)
    assert registry.sweeps() == []
