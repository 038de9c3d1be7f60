import math
import time
from dataclasses import replace

import pytest

from hacpo.errors import RegistryError
from hacpo.registry import Registry, StateCounts, SubmitCounts
from tests.registry.helpers import FakeClock, spec, submit, summary


def counts(**some: int) -> SubmitCounts:
    return SubmitCounts(**{"new": 0, "queued": 0, "running": 0, "done": 0, "failed": 0, **some})


def test_a_resubmission_counts_what_it_found_and_queues_failed_cells_again(registry, take):
    names = ["done", "failed", "running", "queued"]
    first = registry.register_sweep("s", owner="ann", config={}, cells=[spec(n) for n in names])
    registry.finish(take())
    assert not registry.fail(take(), "nan", "loss is NaN", requeue=False)
    take()

    again = registry.register_sweep(
        "s", owner="ann", config={}, cells=[spec(n) for n in [*names, "new"]]
    )

    assert first == counts(new=4)
    assert again == counts(new=1, queued=1, running=1, done=1, failed=1)
    assert again.total == 5
    view = {cell.key: cell for cell in registry.sweep("s").cells}
    assert view["failed"].state == "queued"
    assert (view["failed"].attempts, view["failed"].error) == (0, None)
    assert registry.unfinished("s") == StateCounts(queued=3, running=1, done=1, failed=0)


def test_two_sweeps_share_a_cell_and_each_keeps_its_own_names_for_it(registry, take):
    one = spec("k", "a", label="gspo_xN a s0", method="gspo_xN", combination="a")
    two = spec("k", "a", label="gspo_x2 A s0", method="gspo_x2", combination="A")
    registry.register_sweep("one", owner="ann", config={}, cells=[one])
    assert registry.register_sweep("two", owner="bob", config={}, cells=[two]) == counts(queued=1)

    claim = take(sweep="two")
    assert take(sweep="one") is None
    registry.record_step(claim, summary(0, {"a": 0.5}))
    registry.finish(claim)

    for name, given in (("one", one), ("two", two)):
        (cell,) = registry.sweep(name).cells
        assert (cell.label, cell.method, cell.combination) == (
            given.label,
            given.method,
            given.combination,
        )
        assert (cell.state, cell.agents["a"].reward) == ("done", 0.5)
    assert registry.cell("gspo_x2 A s0").sweeps == ["one", "two"]
    assert registry.cell("k").cell.label == "gspo_xN a s0"


def test_a_cell_twice_in_one_sweep_is_two_rows_and_one_piece_of_work(registry, take):
    twice = [spec("k", label="gspo_xN"), spec("k", label="gspo_x2")]
    assert registry.register_sweep("s", owner="ann", config={}, cells=twice) == counts(new=1)
    assert [cell.label for cell in registry.sweep("s").cells] == ["gspo_xN", "gspo_x2"]
    assert registry.unfinished("s").total == 1
    assert take() is not None
    assert take() is None


def test_a_second_submission_replaces_the_list_of_cells(registry, take):
    submit(registry, "a", "b")
    submit(registry, "c", "a")
    assert [cell.key for cell in registry.sweep("sweep").cells] == ["c", "a"]
    assert [take().cell_key, take().cell_key, take()] == ["c", "a", None]  # b is in no sweep


def test_cells_can_be_added_to_a_sweep(registry):
    submit(registry, "a", "b")
    added = [spec("b"), spec("c")]
    registry.register_sweep("sweep", owner="ann", config={}, cells=added, replace=False)
    assert [cell.key for cell in registry.sweep("sweep").cells] == ["a", "b", "c"]


def test_a_sweep_without_cells_is_refused(registry):
    with pytest.raises(RegistryError, match="'empty' has no cells"):
        registry.register_sweep("empty", owner="ann", config={}, cells=[])
    assert registry.sweeps() == []


def test_a_failed_submission_leaves_nothing(registry):
    broken = spec("b")
    broken.config["x"] = {1, 2}
    with pytest.raises(RegistryError, match="not JSON serializable"):
        registry.register_sweep("s", owner="ann", config={}, cells=[spec("a"), broken])
    assert registry.sweeps() == []
    with pytest.raises(RegistryError, match="no cell 'a'"):
        registry.cell("a")


def test_queued_and_failed_cells_take_the_new_settings_and_running_ones_keep_theirs(registry, take):
    submit(registry, "running", "failed", "queued")
    held = take()
    registry.fail(take(), "oom", "out of memory", requeue=False)
    cells = [spec(key, threads=4) for key in ("running", "failed", "queued")]
    registry.register_sweep("sweep", owner="ann", config={}, cells=cells)
    threads = {key: registry.cell(key).config["threads"] for key in ("running", "failed", "queued")}
    assert threads == {"running": 1, "failed": 4, "queued": 4}
    assert registry.heartbeat(held) == "run"


def test_settings_of_a_cell_that_another_sweep_waits_for_are_left_alone(registry):
    submit(registry, "k", name="theirs")
    cells = [spec("k", threads=4)]
    registry.register_sweep("mine", owner="bob", config={}, cells=cells)
    assert registry.cell("k").config["threads"] == 1


def test_shared_cells_have_their_curves_where_they_were_first_asked_for(registry):
    def named(key: str, name: str):
        return replace(spec(key), config=spec(key).config | {"name": name})

    for name, keys in (("first", "ab"), ("other", "c"), ("second", "abcd")):
        cells = [named(key, name) for key in keys]
        registry.register_sweep(name, owner="ann", config={}, cells=cells)
    registry.link_sweep("first", mlflow_experiment_url="http://mlflow/1")
    assert registry.shared_curves("second") == [
        ("first", 2, "http://mlflow/1"),
        ("other", 1, None),
    ]
    assert registry.shared_curves("first") == []


def test_config_and_agents_come_back_in_the_order_given(registry, take):
    cell = spec("k", "ba")
    registry.register_sweep("s", owner="ann", config={"z": 1, "a": {"y": 2}}, cells=[cell])
    claim = take()
    assert list(claim.config) == ["z", "a", "threads"]
    assert claim.config == cell.config
    assert list(claim.agents) == ["b", "a"]
    assert claim.agents == cell.agents
    assert list(registry.sweep("s").config) == ["z", "a"]


def test_the_list_of_sweeps_tells_who_asked_and_how_far_it_is(registry, take, clock: FakeClock):
    submit(registry, "a", "b", name="old")
    clock.advance(60)
    registry.register_sweep(
        "new", owner="bob", config={}, cells=[spec("c")], prefect_flow_run_id="flow-1", priority=5
    )
    registry.link_sweep("new", mlflow_experiment_url="http://mlflow/1")
    registry.finish(take(sweep="old"))
    new, old = registry.sweeps()
    assert (new.name, new.owner, new.priority) == ("new", "bob", 5)
    assert (new.prefect_flow_run_id, new.mlflow_experiment_url) == ("flow-1", "http://mlflow/1")
    assert new.created == clock.time
    assert old.counts == StateCounts(queued=1, done=1)


def test_cleared_cells_forget_their_results_and_are_queued_again(registry, take):
    submit(registry, "k")
    claim = take()
    registry.record_step(claim, summary(0, {"a": 1.0, "b": math.nan}))
    registry.record_tracking(claim, "parent", {"a": "child"})
    registry.finish(claim)
    assert registry.clear_cell("k") == "k"
    detail = registry.cell("k")
    assert (detail.cell.state, detail.cell.steps_done, detail.cell.rollouts) == ("queued", 0, 0)
    assert (detail.cell.mlflow_run_id, detail.cell.agents["a"].mlflow_run_id) == (None, None)
    assert registry.step_rows("k") == []
    assert [run.state for run in detail.runs] == ["done"]
    assert take().attempt == 1


def test_a_held_cell_is_not_cleared_and_an_abandoned_one_is(registry, take, clock: FakeClock):
    submit(registry, "k")
    claim = take()
    with pytest.raises(RegistryError, match="held by first"):
        registry.clear_cell("k")
    clock.advance(61)
    assert registry.clear_cell("k") == "k"
    assert registry.heartbeat(claim) == "lost"


def test_clearing_an_unknown_cell_forgets_nothing(registry):
    assert registry.clear_cell("k") is None


def test_a_thousand_cells_are_registered_and_shown_quickly(registry: Registry, take):
    cells = [spec(f"{number:064x}") for number in range(1000)]
    started = time.perf_counter()
    registry.register_sweep("big", owner="ann", config={}, cells=cells)
    registered = time.perf_counter() - started
    for _ in range(3):
        claim = take()
        for step in range(7):
            registry.record_step(claim, summary(step, {"a": 0.5, "b": 0.5}))
    started = time.perf_counter()
    assert len(registry.sweep("big").cells) == 1000
    shown = time.perf_counter() - started
    print(f"registered in {registered:.2f} s, shown in {shown:.3f} s")
    assert registered < 5
    assert shown < 1  # about 0.05 s when the machine is not busy


def test_states_of_many_cells_are_asked_at_once_and_unknown_ones_are_left_out(registry, take):
    submit(registry, "a", "b", "c")
    take(cell_key="b")
    states = registry.cell_states(["a", "b", *(f"unknown {n}" for n in range(1000))])
    assert states == {"a": "queued", "b": "running"}
