import pytest

from hacpo.config import RUNS
from hacpo.errors import LeaseLostError, RegistryError
from hacpo.registry import Registry
from tests.registry.helpers import FakeClock, spec, submit


def states(registry: Registry, sweep: str = "sweep") -> list[str]:
    return [cell.state for cell in registry.sweep(sweep).cells]


def test_a_paused_sweep_is_not_served_and_its_holders_are_told(registry, take):
    submit(registry, "a", "b")
    held = take()
    view = registry.want("sweep", "pause")
    assert (view.state, view.counts.running, view.counts.paused) == ("paused", 1, 1)
    assert registry.heartbeat(held) == "pause"
    assert take() is None
    registry.release(held)
    assert states(registry) == ["paused", "paused"]
    assert registry.sweep("sweep").counts.unfinished == 2

    registry.want("sweep", "run")
    assert states(registry) == ["queued", "queued"]
    again = take()
    assert (again.cell_key, again.attempt) == ("a", 1)  # the released attempt was not counted


def test_a_cancelled_sweep_is_over_and_may_be_cancelled_again(registry, take):
    submit(registry, "a", "b")
    registry.finish(take())
    for _ in range(2):
        view = registry.want("sweep", "cancel")
        assert (view.state, view.counts.cancelled, view.counts.unfinished) == ("cancelled", 1, 0)
    assert states(registry) == ["done", "cancelled"]
    assert take() is None


def test_a_cell_that_another_sweep_wants_goes_on(registry, take):
    submit(registry, "shared", "own", name="first")
    submit(registry, "shared", name="second")
    held = take()
    registry.want("first", "cancel")
    assert registry.heartbeat(held) == "run"
    assert states(registry, "first") == ["running", "cancelled"]
    registry.release(held)
    assert states(registry, "first") == ["queued", "cancelled"]
    claim = take()
    assert (claim.cell_key, claim.sweep) == ("shared", "second")
    registry.want("second", "pause")
    assert registry.heartbeat(claim) == "pause"  # paused outweighs cancelled: it may come back
    registry.release(claim)
    assert states(registry, "first") == ["paused", "cancelled"]


def test_submitting_again_resumes_a_cancelled_sweep(registry, take):
    submit(registry, "a", "b")
    registry.want("sweep", "cancel")
    counts = registry.register_sweep("sweep", owner="ann", config={}, cells=[spec("a"), spec("c")])
    assert (counts.new, counts.queued) == (1, 1)
    assert states(registry) == ["queued", "queued"]


def test_fill_queues_exactly_the_failed_cells(registry, take, clock: FakeClock):
    submit(registry, "done", "failed", "lost", "queued", "running")
    registry.finish(take(cell_key="done"))
    registry.fail(take(cell_key="failed"), "config", "no", requeue=False)
    for _ in range(3):
        take("gone", cell_key="lost")
        clock.advance(61)
    held = take(cell_key="running")
    registry.want("sweep", "cancel")
    assert states(registry) == ["done", "failed", "failed", "cancelled", "running"]

    assert registry.fill("sweep") == 2

    assert states(registry) == ["done", "queued", "queued", "queued", "running"]
    assert registry.heartbeat(held) == "run"
    assert registry.fill("sweep") == 0
    assert [take().attempt for _ in range(3)] == [1, 1, 1]
    assert take() is None


def test_a_lost_holder_cannot_write_after_its_cell_was_filled(registry, take, clock: FakeClock):
    submit(registry, "k")
    for _ in range(3):
        held = take()
        clock.advance(61)
    registry.fill("sweep")
    assert registry.heartbeat(held) == "lost"
    with pytest.raises(LeaseLostError):
        registry.finish(held)


def test_owners_take_turns_and_priority_goes_first(registry, take):
    def sweep(name: str, owner: str, keys: str, priority: int = 0) -> None:
        cells = [spec(f"{name}-{key}") for key in keys]
        registry.register_sweep(name, owner=owner, config={}, cells=cells, priority=priority)

    sweep("ann1", "ann", "123")
    sweep("ann2", "ann", "1")
    sweep("bob", "bob", "12")
    sweep("urgent", "cem", "12", priority=5)
    order = [take().cell_key for _ in range(8)]
    # cem by priority; then ann, the oldest of those with none running, bob, who has fewer, ...
    assert order == [
        "urgent-1",
        "urgent-2",
        "ann1-1",
        "bob-1",
        "ann1-2",
        "bob-2",
        "ann1-3",
        "ann2-1",
    ]


def test_queue_tells_the_order_of_the_next_claims(registry, take):
    submit(registry, "a1", "a2", name="ann")
    registry.register_sweep("bob", owner="bob", config={}, cells=[spec("b1")])
    registry.register_sweep("idle", owner="eve", config={}, cells=[spec("e1")])
    registry.want("idle", "pause")
    take()
    assert [row.key for row in registry.queue()] == ["b1", "a2"]
    assert [row.key for row in registry.queue(limit=1)] == ["b1"]
    registry.set_priority("ann", 1)
    assert [(row.key, row.priority) for row in registry.queue()] == [("a2", 1), ("b1", 0)]
    assert registry.queued_by_gpus() == {1: 2}


def test_a_cell_is_claimed_by_those_with_as_many_devices(registry, take):
    cells = [spec("small"), spec("large", gpus=2)]
    registry.register_sweep("sweep", owner="ann", config={}, cells=cells)
    assert registry.queued_by_gpus() == {1: 1, 2: 1}
    assert take(gpus=2).cell_key == "large"
    assert take(gpus=2) is None
    assert take(gpus=1).cell_key == "small"


def test_a_sweep_may_be_kept_to_a_few_cells_at_a_time(registry, take):
    cells = [spec(key) for key in "abc"]
    registry.register_sweep("modest", owner="ann", config={}, cells=cells, max_running=1)
    submit(registry, "d", name="other")
    held = take()
    assert registry.queued_by_gpus() == {1: 1}
    assert [take().cell_key, take()] == ["d", None]
    assert registry.queued_by_gpus() == {}
    registry.finish(held)
    assert take().cell_key == "b"


def test_a_cell_claimed_by_its_key_counts_for_no_sweep(registry, take):
    cells = [spec(key) for key in "abc"]
    registry.register_sweep("modest", owner="ann", config={}, cells=cells, max_running=1)
    registry.end_lease(take().cell_key, "first")
    assert take(cell_key="a").cell_key == "a"
    assert take().cell_key == "b"


def test_one_run_can_be_asked_to_stop(registry, take):
    submit(registry, "a", "b")
    first = take(prefect_flow_run_id="one")
    second = take(prefect_flow_run_id="two")
    assert registry.request_stop("one") == 1
    assert registry.request_stop("three") == 0
    assert (registry.heartbeat(first), registry.heartbeat(second)) == ("stop", "run")
    registry.release(first)
    assert registry.heartbeat(take()) == "run"


def test_a_claim_tells_for_which_sweep_it_is_and_whether_it_is_offline(registry, take):
    registry.register_sweep("dark", owner="ann", config={}, cells=[spec("k")], offline=True)
    claim = take()
    assert (claim.sweep, claim.offline) == ("dark", True)
    registry.release(claim)
    assert take(cell_key="k").sweep == ""


def test_news_are_told_once(registry, take, clock: FakeClock):
    def news() -> list[tuple[str, str]]:
        found = registry.news()
        for item in found:
            registry.tell(item)
        return [(item.sweep.name, item.what) for item in found]

    submit(registry, "a", "b")
    assert news() == []
    registry.fail(take(), "config", "no", requeue=False)
    assert (news(), news()) == ([("sweep", "failing")], [])
    registry.finish(take())
    assert (news(), news()) == ([("sweep", "failed")], [])
    registry.fill("sweep")
    assert news() == []
    registry.finish(take())
    assert (news(), news()) == ([("sweep", "done")], [])
    submit(registry, "a", "c")
    registry.want("sweep", "cancel")
    assert (news(), news()) == ([("sweep", "cancelled")], [])


def test_an_unknown_owner_or_sweep_is_told_with_the_known_ones(registry):
    submit(registry, "a")
    assert [row.name for row in registry.owned_by("ann")] == ["sweep"]
    with pytest.raises(RegistryError, match="no sweep of owner 'bob'; owners: ann"):
        registry.owned_by("bob")
    for act in (registry.fill, lambda name: registry.want(name, "pause")):
        with pytest.raises(RegistryError, match="no sweep 'nope' in the registry; known: sweep"):
            act("nope")


def test_no_worker_takes_what_hacpo_run_left(registry):
    registry.register_sweep(RUNS, owner="", config={}, cells=[spec("mine")], replace=False)
    submit(registry, "theirs")
    assert registry.queued_by_gpus() == {1: 1}
    claimed = registry.claim("h", host="box", pid=1)
    assert claimed.cell_key == "theirs"
    assert registry.claim("h", host="box", pid=1) is None
    assert registry.claim("h", host="box", pid=1, cell_key="mine").cell_key == "mine"
