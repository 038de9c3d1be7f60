from collections import Counter

import pytest

from hacpo.errors import LeaseLostError, RegistryError
from hacpo.registry import Registry, StateCounts
from tests.registry.helpers import (
    FakeClock,
    claim_all,
    evaluation,
    in_processes,
    spec,
    submit,
    summary,
)


def test_cells_are_claimed_in_the_order_of_the_sweep(registry, take):
    submit(registry, "c", "a", "b")
    assert [take(sweep="sweep").cell_key for _ in range(3)] == ["c", "a", "b"]
    assert take(sweep="sweep") is None


def test_sweeps_are_served_by_priority_and_then_by_age(registry, take):
    submit(registry, "a1", "a2", name="old")
    submit(registry, "b1", name="young")
    registry.register_sweep("urgent", owner="ann", config={}, cells=[spec("c1")], priority=1)
    assert [take().cell_key for _ in range(4)] == ["c1", "a1", "a2", "b1"]


def test_one_cell_can_be_claimed_by_its_key(registry, take):
    submit(registry, "a", "b")
    assert take(cell_key="b").cell_key == "b"
    assert take(cell_key="b") is None


def test_claiming_what_does_not_exist_is_an_error_and_not_an_empty_queue(registry, take):
    submit(registry, "a")
    with pytest.raises(RegistryError, match=r"no sweep 'sweeep' in the registry; known: sweep"):
        take(sweep="sweeep")
    with pytest.raises(RegistryError, match="no cell 'b'"):
        take(cell_key="b")


def test_a_dead_holders_cell_is_free_at_once_and_a_living_ones_is_not(registry, take):
    submit(registry, "k")
    dead = take("dead@box")
    assert not registry.end_lease("k", "other@box")
    assert take("other@box") is None
    assert registry.end_lease("k", "dead@box")
    assert take("other@box").attempt == 2
    with pytest.raises(LeaseLostError):
        registry.finish(dead)


def test_a_claim_is_visible_to_people(registry, take, clock: FakeClock):
    submit(registry, "k")
    claim = take("ann@box", code_version="abc", prefect_flow_run_id="flow-9")
    registry.start_step_total(claim, 58, device="cuda:0")
    assert registry.heartbeat(claim, activity="sampling", steps_done=20) == "run"
    clock.advance(12)
    (cell,) = registry.sweep("sweep").cells
    assert (cell.state, cell.holder, cell.host, cell.pid) == ("running", "ann@box", "box", 7)
    assert (cell.steps_done, cell.steps_total, cell.activity) == (20, 58, "sampling")
    assert (cell.device, cell.code_version) == ("cuda:0", "abc")
    assert (cell.prefect_flow_run_id, cell.heartbeat_age) == ("flow-9", 12.0)
    assert cell.started is not None
    assert (claim.attempt, claim.token, cell.attempts) == (1, 1, 1)


def test_a_lease_that_passed_gives_the_cell_to_another_and_refuses_the_old_holder(
    registry, take, clock: FakeClock
):
    submit(registry, "k")
    old = take("old")
    registry.record_step(old, summary(0, {"a": 0.25, "b": 0.25}))
    clock.advance(61)
    assert registry.unfinished("sweep") == StateCounts(queued=1)
    (cell,) = registry.sweep("sweep").cells
    assert (cell.state, cell.stale, cell.holder) == ("queued", True, "old")

    new = take("new")

    assert (new.attempt, new.token) == (2, 2)
    assert registry.heartbeat(old) == "lost"
    refused = [
        lambda: registry.start_step_total(old, 9),
        lambda: registry.record_step(old, summary(0, {"a": 0.0, "b": 0.0})),
        lambda: registry.record_checkpoint(old, 1, "path", 1, "sha"),
        lambda: registry.forget_checkpoint(old, 1),
        lambda: registry.record_evaluation(old, evaluation()),
        lambda: registry.record_tracking(old, "parent", {}),
        lambda: registry.record_cost(
            old, "a", rollouts_generated=1, rollouts_consumed=1, tokens=1, device_seconds=1
        ),
        lambda: registry.finish(old),
        lambda: registry.fail(old, "oom", "out of memory", requeue=True),
        lambda: registry.release(old),
    ]
    for write in refused:
        with pytest.raises(LeaseLostError, match="no longer held by old"):
            write()
    assert {row.reward_mean for row in registry.step_rows("k")} == {0.25}
    assert registry.heartbeat(new) == "run"
    lost, running = registry.cell("k").runs
    assert (lost.state, lost.error_kind, running.state) == ("failed", "lost", "running")
    assert lost.ended == clock.time


def test_a_holder_that_nobody_replaced_may_go_on_after_its_lease_passed(
    registry, take, clock: FakeClock
):
    submit(registry, "k")
    claim = take()
    clock.advance(300)
    assert registry.heartbeat(claim) == "run"
    assert take("other") is None
    registry.finish(claim)


def test_every_write_renews_the_lease(registry, take, clock: FakeClock):
    submit(registry, "k")
    claim = take(lease_seconds=10)
    for step in range(3):
        clock.advance(9)
        registry.record_step(claim, summary(step, {"a": 0.5, "b": 0.5}))
    assert take("other") is None


def test_a_cell_whose_last_lease_passed_is_failed_as_lost(registry, take, clock: FakeClock):
    submit(registry, "k")
    for attempt in (1, 2, 3):
        assert take().attempt == attempt
        clock.advance(61)
    assert registry.unfinished("sweep") == StateCounts(failed=1)
    (before,) = registry.sweep("sweep").cells
    assert take() is None
    (after,) = registry.sweep("sweep").cells
    assert (before.state, before.error_kind, before.stale) == ("failed", "lost", True)
    assert (after.state, after.error_kind, after.stale) == ("failed", "lost", False)
    assert before.error == after.error
    assert [run.error_kind for run in registry.cell("k").runs] == ["lost"] * 3


def test_a_failure_is_tried_again_until_no_attempts_are_left(registry, take, clock: FakeClock):
    submit(registry, "k")
    outcomes = []
    for pause in (10, 20, 40):
        outcomes.append(registry.fail(take(), "crash", "worker died", requeue=True))
        clock.advance(pause - 1)
        assert take() is None
        clock.advance(1)
    assert outcomes == [True, True, False]
    assert take() is None
    (cell,) = registry.sweep("sweep").cells
    assert (cell.state, cell.attempts, cell.error) == ("failed", 3, "worker died")


def test_a_failure_that_is_not_to_be_tried_again_is_final(registry, take):
    submit(registry, "k")
    assert not registry.fail(take(), "config", "no such model", requeue=False)
    assert registry.unfinished("sweep") == StateCounts(failed=1)


def test_a_released_cell_is_queued_and_its_attempt_is_not_counted(registry, take):
    submit(registry, "k")
    for _ in range(5):
        claim = take()
        assert claim.attempt == 1
        registry.release(claim)
    assert registry.heartbeat(claim) == "lost"
    assert take().token == 6
    assert [run.state for run in registry.cell("k").runs] == ["cancelled"] * 5 + ["running"]


def test_a_finished_cell_is_not_claimed_again(registry, take):
    submit(registry, "k")
    claim = take()
    registry.finish(claim)
    assert take() is None
    assert registry.heartbeat(claim) == "lost"
    (cell,) = registry.sweep("sweep").cells
    assert (cell.state, cell.holder, cell.heartbeat_age) == ("done", None, None)
    assert cell.ended is not None


def test_a_later_attempt_continues_the_mlflow_runs_of_an_earlier_one(registry, take, clock):
    submit(registry, "k")
    claim = take()
    assert (claim.mlflow_run_id, claim.mlflow_agent_run_ids) == (None, {})
    registry.record_tracking(claim, "parent", {"a": "child-a", "b": "child-b"})
    registry.fail(claim, "crash", "died", requeue=True)
    clock.advance(10)
    again = take()
    assert again.mlflow_run_id == "parent"
    assert again.mlflow_agent_run_ids == {"a": "child-a", "b": "child-b"}


@pytest.mark.slow
def test_eight_processes_claim_each_of_two_thousand_cells_exactly_once(url: str):
    """Of several sweeps, owners and priorities, so that processes differ in whose turn it is."""
    with Registry.open(url) as registry:
        for sweep in range(4):
            cells = [spec(f"{sweep}-{number}") for number in range(500)]
            owner, priority = f"owner{sweep % 2}", sweep // 2
            registry.register_sweep(
                f"race{sweep}", owner=owner, config={}, cells=cells, priority=priority
            )
        claimed = in_processes(8, claim_all, url)
        per_cell = Counter(key for keys in claimed for key in keys)
        assert len(per_cell) == 2000
        assert set(per_cell.values()) == {1}
        assert {row.counts for row in registry.sweeps()} == {StateCounts(done=500)}
        assert {cell.attempts for cell in registry.sweep("race0").cells} == {1}


def test_three_processes_share_a_small_sweep(url: str):
    with Registry.open(url) as registry:
        submit(registry, *(f"cell-{number}" for number in range(60)))
        claimed = in_processes(3, claim_all, url)
        assert sorted(key for keys in claimed for key in keys) == sorted(
            f"cell-{number}" for number in range(60)
        )
