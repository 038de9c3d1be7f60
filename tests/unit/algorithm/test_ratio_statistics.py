"""Axes: B rows, T response tokens."""

import itertools
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from hacpo.algorithm import (
    finish_extremes,
    finish_means,
    merge_extremes,
    merge_statistics,
    policy_objective,
    ratio_extremes,
    ratio_statistics,
    token_extremes,
    token_objective,
    token_statistics,
)

CLIP = {"clip_low": 0.2, "clip_high": 0.28}


def f64(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def bools(text: str) -> Tensor:
    return torch.tensor([letter == "1" for letter in text])


RATIO_B = f64(0.5, 0.5, 1.5, 1.5, 1.0, 0.5, 0.9, 1.5)
ADVANTAGES_B = f64(-1.0, 1.0, 1.0, -1.0, 1.0, 1.0, -1.0, 1.0)
IS_SELF_B = bools("11111000")


def test_clips_are_counted_by_sign_on_self_rows_and_by_bound_on_cross_rows() -> None:
    means = finish_means(ratio_statistics(RATIO_B, ADVANTAGES_B, IS_SELF_B, floor=0.8, **CLIP))
    assert means == pytest.approx(
        {
            "ratio/self_mean": 1.0,  # (0.5 + 0.5 + 1.5 + 1.5 + 1) / 5
            "ratio/cross_mean": 2.9 / 3,  # (0.5 + 0.9 + 1.5) / 3
            "clip/self_low": 1 / 5,  # the first row only: below with A < 0
            "clip/self_high": 1 / 5,  # the third row only: above with A > 0
            "clip/cross_floor": 1 / 3,
            "clip/cross_ceiling": 1 / 3,
        }
    )


def test_naive_sharing_counts_all_rows_by_the_self_clip() -> None:
    statistics = ratio_statistics(
        RATIO_B, ADVANTAGES_B, IS_SELF_B, floor=0.8, shared_rule="self", **CLIP
    )
    means = finish_means(statistics)
    assert means["clip/self_low"] == 1 / 8
    assert means["clip/self_high"] == 2 / 8
    assert means["ratio/self_mean"] == 1.0
    assert "clip/cross_floor" not in means
    assert "clip/cross_ceiling" not in means


def test_no_floor_clips_no_row_below() -> None:
    means = finish_means(ratio_statistics(RATIO_B, ADVANTAGES_B, IS_SELF_B, floor=None, **CLIP))
    assert means["clip/cross_floor"] == 0.0
    assert means["clip/cross_ceiling"] == pytest.approx(1 / 3)


def test_cross_means_are_also_given_per_source() -> None:
    statistics = ratio_statistics(
        RATIO_B,
        ADVANTAGES_B,
        IS_SELF_B,
        torch.tensor([0, 0, 0, 0, 0, 1, 1, 2]),
        floor=0.8,
        source_names=["qwen", "llama", "phi"],
        **CLIP,
    )
    means = finish_means(statistics)
    assert means["ratio/cross_mean/llama"] == pytest.approx(0.7)  # (0.5 + 0.9) / 2
    assert means["ratio/cross_mean/phi"] == 1.5
    assert "ratio/cross_mean/qwen" not in means  # the learner itself


def test_a_row_left_out_is_counted_nowhere() -> None:
    included_B = bools("11111110")
    statistics = ratio_statistics(
        RATIO_B, ADVANTAGES_B, IS_SELF_B, floor=0.8, included_B=included_B, **CLIP
    )
    means = finish_means(statistics)
    assert means["ratio/cross_mean"] == pytest.approx(0.7)
    assert means["clip/cross_ceiling"] == 0.0
    extremes = finish_extremes(ratio_extremes(RATIO_B, IS_SELF_B, included_B))
    assert extremes["ratio/cross_max"] == 0.9


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 8), max_size=4), st.sampled_from(["cross", "self"]))
def test_statistics_and_extremes_add_over_any_split(cuts: list[int], rule: Any) -> None:
    edges = [0, *sorted(cuts), 8]
    merged: Any = {}
    extremes: Any = {}
    for start, stop in itertools.pairwise(edges):
        part = slice(start, stop)
        rows = (RATIO_B[part], ADVANTAGES_B[part], IS_SELF_B[part])
        merged = merge_statistics(
            merged, ratio_statistics(*rows, floor=0.8, shared_rule=rule, **CLIP)
        )
        extremes = merge_extremes(extremes, ratio_extremes(rows[0], rows[2]))
    whole = ratio_statistics(RATIO_B, ADVANTAGES_B, IS_SELF_B, floor=0.8, shared_rule=rule, **CLIP)
    assert finish_means(merged) == pytest.approx(finish_means(whole))
    assert finish_extremes(extremes) == {
        "ratio/self_min": 0.5,
        "ratio/self_max": 1.5,
        "ratio/cross_min": 0.5,
        "ratio/cross_max": 1.5,
    }


def test_merging_weighs_by_rows_and_is_no_mean_of_means() -> None:
    def statistics(ratio_B: Tensor) -> Any:
        is_self_B = torch.ones(len(ratio_B), dtype=torch.bool)
        return ratio_statistics(ratio_B, ratio_B, is_self_B, floor=None, **CLIP)

    merged = merge_statistics(statistics(f64(1.0, 1.0, 1.0)), statistics(f64(2.0)))
    assert finish_means(merged)["ratio/self_mean"] == 1.25  # not (1 + 2) / 2


def test_kinds_of_rows_that_do_not_occur_are_left_out() -> None:
    rows = (RATIO_B[:5], ADVANTAGES_B[:5], IS_SELF_B[:5])
    means = finish_means(ratio_statistics(*rows, floor=0.8, **CLIP))
    assert set(means) == {"ratio/self_mean", "clip/self_low", "clip/self_high"}
    extremes = finish_extremes(ratio_extremes(rows[0], rows[2]))
    assert extremes == {"ratio/self_min": 0.5, "ratio/self_max": 1.5}


@pytest.mark.parametrize("rule", ["cross", "self"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_clipped_rows_are_those_whose_gradient_is_0(rule: Any, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(5)
    size = 400
    learner_B = (torch.randn(size, generator=generator) * 0.3).to(dtype).requires_grad_()
    source_B = torch.zeros(size, dtype=dtype)
    advantages_B = torch.randn(size, generator=generator).to(dtype)
    is_self_B = torch.rand(size, generator=generator) > 0.5
    objective_B, ratio_B = policy_objective(
        learner_B,
        source_B,
        advantages_B,
        is_self_B,
        torch.ones(size, dtype=dtype),
        floor=0.8,
        alpha=1.0,
        shared_rule=rule,
        **CLIP,
    )
    (gradient_B,) = torch.autograd.grad(objective_B.sum(), learner_B)
    statistics = ratio_statistics(
        ratio_B, advantages_B, is_self_B, floor=0.8, shared_rule=rule, **CLIP
    )
    counted = sum(total.item() for name, (total, _) in statistics.items() if "clip/" in name)
    assert counted == (gradient_B == 0).sum().item() > 50


def test_token_clips_are_counted_by_sign_over_response_tokens() -> None:
    learner_BT = f64(0.5, 1.5, 1.0, 0.5, 1.5, 9.0).view(2, 3).log()
    mask_BT = torch.stack([bools("111"), bools("110")])
    rows = (learner_BT, torch.zeros_like(learner_BT), mask_BT)
    advantages_B = f64(1.0, -1.0)
    means = finish_means(token_statistics(*rows, advantages_B, **CLIP))
    # first row A > 0: only 1.5 is clipped; second A < 0: only 0.5; 9.0 is padding
    assert means == pytest.approx(
        {"ratio/self_mean": 5.0 / 5, "clip/self_low": 1 / 5, "clip/self_high": 1 / 5}
    )
    extremes = finish_extremes(token_extremes(*rows))
    assert extremes == pytest.approx({"ratio/self_min": 0.5, "ratio/self_max": 1.5})
    learner_BT.requires_grad_()
    objective_B = token_objective(learner_BT, rows[1], mask_BT, advantages_B, **CLIP)
    (gradient_BT,) = torch.autograd.grad(objective_B.sum(), learner_BT)
    assert (gradient_BT[mask_BT] == 0).sum() == 2


def test_statistics_are_detached_and_exact_in_float32() -> None:
    ratio_B = torch.full((10_000,), 1.00002, requires_grad=True)
    is_self_B = torch.ones(10_000, dtype=torch.bool)
    statistics = ratio_statistics(ratio_B, ratio_B.detach(), is_self_B, floor=None, **CLIP)
    assert not any(tensor.requires_grad for pair in statistics.values() for tensor in pair)
    mean = finish_means(statistics)["ratio/self_mean"]
    assert math.isclose(mean, ratio_B[0].item(), rel_tol=1e-12)


def test_sources_without_names_and_float_masks_are_refused() -> None:
    rows = (RATIO_B, ADVANTAGES_B, IS_SELF_B)
    with pytest.raises(ValueError, match="name the agents"):
        ratio_statistics(*rows, torch.zeros(8, dtype=torch.long), floor=None, **CLIP)
    with pytest.raises(ValueError, match=r"included_B is torch\.float64"):
        ratio_extremes(RATIO_B, IS_SELF_B, RATIO_B)
