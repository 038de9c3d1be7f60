"""Ratio and clip metrics that add up over micro-batches and updates (Table 6).

A statistic is a (sum, count) pair of tensors and becomes a mean only at the end, so there is no
mean of means; an extreme is a (min, max) pair. Axes: B rows (one rollout as one learner reads it),
T response tokens.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from hacpo.algorithm.ratio import check_bool, check_rows, token_ratio

Statistics = dict[str, tuple[Tensor, Tensor]]
"""Metric name -> (sum, count), both float64 scalars."""
Extremes = dict[str, tuple[Tensor, Tensor]]
"""`ratio/self` or `ratio/cross` -> (min, max); (inf, -inf) where there was no row."""


def ratio_statistics(
    ratio_B: Tensor,
    advantages_B: Tensor,
    is_self_B: Tensor,
    source_B: Tensor | None = None,
    *,
    clip_low: float,
    clip_high: float,
    floor: float | None,
    shared_rule: Literal["cross", "self"] = "cross",
    included_B: Tensor | None = None,
    source_names: Sequence[str] = (),
) -> Statistics:
    """Mean ratios and clipped fractions of some rows, as sums and counts.

    `clip/self_low` and `clip/self_high` count the rows whose gradient the min-clip removes: below
    with A < 0, above with A > 0. `clip/cross_floor` and `clip/cross_ceiling` count cross rows below
    the floor and above 1. Under `shared_rule="self"` all rows are counted by the self clip and
    none by the cross one.

    Args:
        ratio_B: [B] before clipping, from `policy_objective`.
        advantages_B: [B].
        is_self_B: [B] bool.
        source_B: [B] integer agent indices, for `ratio/cross_mean/NAME` per source; needs names.
        clip_low: self clip below 1.
        clip_high: self clip above 1.
        floor: lower bound of this update's cross ratios; None is no clip.
        shared_rule: as in `policy_objective`.
        included_B: [B] bool, False at rows whose ratio means nothing (no tokens); None is all.
        source_names: name of each agent index.

    Raises:
        ValueError: shapes differ, a mask is not bool, or `source_B` comes without names.
    """
    ratio_B = ratio_B.detach()
    counted_B = torch.ones_like(is_self_B) if included_B is None else included_B
    check_rows(ratio=ratio_B, advantages=advantages_B, is_self=is_self_B, included=counted_B)
    check_bool(is_self_B=is_self_B, included_B=counted_B)
    self_B, cross_B = is_self_B & counted_B, ~is_self_B & counted_B
    by_self_B = counted_B if shared_rule == "self" else self_B
    by_cross_B = torch.zeros_like(cross_B) if shared_rule == "self" else cross_B
    below_B = torch.zeros_like(cross_B) if floor is None else ratio_B < floor
    statistics = {
        "ratio/self_mean": _over(self_B, ratio_B),
        "ratio/cross_mean": _over(cross_B, ratio_B),
        "clip/self_low": _over(by_self_B, (ratio_B < 1 - clip_low) & (advantages_B < 0)),
        "clip/self_high": _over(by_self_B, (ratio_B > 1 + clip_high) & (advantages_B > 0)),
        "clip/cross_floor": _over(by_cross_B, below_B),
        "clip/cross_ceiling": _over(by_cross_B, ratio_B > 1),
    }
    if source_B is not None:
        if not source_names:
            raise ValueError("source_B without source_names: name the agents behind its indices")
        check_rows(ratio=ratio_B, source=source_B)
        for source, name in enumerate(source_names):
            from_source_B = cross_B & (source_B == source)
            statistics[f"ratio/cross_mean/{name}"] = _over(from_source_B, ratio_B)
    return statistics


def token_statistics(
    learner_logprobs_BT: Tensor,
    old_logprobs_BT: Tensor,
    response_mask_BT: Tensor,
    advantages_B: Tensor,
    *,
    clip_low: float,
    clip_high: float,
) -> Statistics:
    """`ratio_statistics` of grpo: the same self names, counted over response tokens."""
    ratio_BT = token_ratio(learner_logprobs_BT, old_logprobs_BT, response_mask_BT)
    return ratio_statistics(
        ratio_BT,
        advantages_B[:, None].expand_as(ratio_BT),
        torch.ones_like(response_mask_BT),
        clip_low=clip_low,
        clip_high=clip_high,
        floor=None,
        included_B=response_mask_BT,
    )


def ratio_extremes(
    ratio_B: Tensor, is_self_B: Tensor, included_B: Tensor | None = None
) -> Extremes:
    """Smallest and largest ratio before clipping of self and of cross rows (Table 6's ranges)."""
    ratio_B = ratio_B.detach()
    counted_B = torch.ones_like(is_self_B) if included_B is None else included_B
    check_rows(ratio=ratio_B, is_self=is_self_B, included=counted_B)
    check_bool(is_self_B=is_self_B, included_B=counted_B)
    return {
        "ratio/self": _range_over(is_self_B & counted_B, ratio_B),
        "ratio/cross": _range_over(~is_self_B & counted_B, ratio_B),
    }


def token_extremes(
    learner_logprobs_BT: Tensor, old_logprobs_BT: Tensor, response_mask_BT: Tensor
) -> Extremes:
    """`ratio_extremes` of grpo, over response tokens."""
    ratio_BT = token_ratio(learner_logprobs_BT, old_logprobs_BT, response_mask_BT)
    return ratio_extremes(ratio_BT, torch.ones_like(response_mask_BT), response_mask_BT)


def merge_statistics(first: Statistics, second: Statistics) -> Statistics:
    """Sums and counts of both; a name that only one of them has is kept."""
    merged = dict(first)
    for name, (total, count) in second.items():
        known = merged.get(name)
        merged[name] = (total, count) if known is None else (known[0] + total, known[1] + count)
    return merged


def merge_extremes(first: Extremes, second: Extremes) -> Extremes:
    """Range of both; a name that only one of them has is kept."""
    merged = dict(first)
    for name, (low, high) in second.items():
        known_low, known_high = merged.get(name, (low, high))
        merged[name] = (torch.minimum(known_low, low), torch.maximum(known_high, high))
    return merged


def finish_means(statistics: Statistics) -> dict[str, float]:
    """Metric name -> mean, at the last moment; a name without any counted row is left out."""
    numbers = {name: (float(total), float(count)) for name, (total, count) in statistics.items()}
    return {name: total / count for name, (total, count) in numbers.items() if count > 0}


def finish_extremes(extremes: Extremes) -> dict[str, float]:
    """`NAME_min` and `NAME_max` as numbers; a name without any row is left out."""
    numbers = {name: (float(low), float(high)) for name, (low, high) in extremes.items()}
    seen = {name: bounds for name, bounds in numbers.items() if bounds[0] <= bounds[1]}
    lows = {f"{name}_min": low for name, (low, _) in seen.items()}
    return lows | {f"{name}_max": high for name, (_, high) in seen.items()}


def _over(rows_B: Tensor, values_B: Tensor) -> tuple[Tensor, Tensor]:
    # float64: a mean ratio of 1.00002 is lost in a long float32 sum.
    total = torch.where(rows_B, values_B.double(), 0.0).sum()
    return total, rows_B.sum().double()


def _range_over(rows_B: Tensor, values_B: Tensor) -> tuple[Tensor, Tensor]:
    if values_B.numel() == 0:
        return values_B.new_tensor(torch.inf), values_B.new_tensor(-torch.inf)
    low = torch.where(rows_B, values_B, torch.inf).amin()
    high = torch.where(rows_B, values_B, -torch.inf).amax()
    return low, high
