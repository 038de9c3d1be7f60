"""What does not fit is refused, and what the refusal says makes it fit."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hacpo.config import RunConfig
from hacpo.plan.fit import Change, check_fits, places, remedy
from hacpo.plan.memory import DoesNotFitError, Sizes
from hacpo.presets import load_run
from tests.tiny import tiny_pair

BASE = 1000


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return tiny_pair(tmp_path_factory.mktemp("pair")) | {"update": {"problems_per_step": 16}}


def sizes_of(config: RunConfig) -> Sizes:
    folders = {name: agent.model for name, agent in config.agents.items()}
    assert all(Path(folder).is_dir() for folder in folders.values())
    return Sizes(folders, dict.fromkeys(folders, 9), held_out=8)


def needed(config: RunConfig, sizes: Sizes, free: Mapping[str, int]) -> int:
    (place,) = places(config, sizes.agents(config), BASE, free)
    return place.needed


@pytest.mark.parametrize("share", [0.97, 0.9, 0.8, 0.6, 0.4, 0.2, 0.1])
@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["rollout.max_response_tokens=40", "evaluate.samples=0", "evaluate.greedy=false"],
        ["evaluate.samples=64", "rollout.batch_rows=4096", "evaluate.max_response_tokens=50"],
        ["method=gspo"],
    ],
    ids=["short", "activations", "cache", "one"],
)
def test_a_suggestion_makes_the_run_fit(
    pair: dict[str, Any], overrides: list[str], share: float
) -> None:
    agent = "b" if "method=gspo" in overrides else None
    config = load_run(pair, overrides, agent)
    sizes = sizes_of(config)
    free = {"memory": int(share * needed(config, sizes, {"memory": 0}))}

    def fits(candidate: RunConfig) -> bool:
        return needed(candidate, sizes, free) <= free["memory"]

    changes = remedy(config, fits)
    with pytest.raises(DoesNotFitError) as refusal:
        check_fits(config, sizes, BASE, free)
    if changes is None:
        assert "smaller model" in str(refusal.value)
        return
    assert changes
    assert all(str(change) in str(refusal.value) for change in changes)
    wanted = [f"{change.key}={str(change.new).lower()}" for change in changes]
    assert check_fits(load_run(pair, [*overrides, *wanted], agent), sizes, BASE, free)


def test_numbers_that_cost_only_time_come_first(pair: dict[str, Any]) -> None:
    activations = ["rollout.max_response_tokens=40", "evaluate.samples=0", "evaluate.greedy=false"]
    cache = ["evaluate.samples=64", "rollout.batch_rows=4096", "evaluate.max_response_tokens=50"]
    for overrides, key in ((activations, "update.micro_tokens"), (cache, "rollout.batch_rows")):
        config = load_run(pair, overrides)
        sizes = sizes_of(config)
        limit = int(0.8 * needed(config, sizes, {"memory": 0}))
        changes = remedy(config, lambda c, s=sizes, n=limit: needed(c, s, {"memory": 0}) <= n)  # type: ignore[misc]
        assert changes is not None
        assert [change.key for change in changes] == [key]


def test_what_fits_needs_no_change(pair: dict[str, Any]) -> None:
    config = load_run(pair)
    assert remedy(config, lambda _: True) == []
    assert check_fits(config, sizes_of(config), BASE, {"memory": 1 << 40})[0].fits


def test_a_change_reads_as_what_to_do() -> None:
    assert str(Change("update.micro_tokens", 16384, 4096)) == (
        "lower update.micro_tokens from 16384 to 4096"
    )
    assert str(Change("offload", False, True)) == "set offload to true"
