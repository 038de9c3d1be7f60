"""Clipping of sequence ratios: GSPO's for self rows, stepwise and from above for cross rows.

Axes: B rows (one rollout as one learner reads it). A ratio outside its bounds carries no gradient.
"""

from torch import Tensor


def clip_self(ratio_B: Tensor, clip_low: float, clip_high: float) -> Tensor:
    """The ratio within [1 - clip_low, 1 + clip_high].

    Raises:
        ValueError: `clip_low` is outside [0, 1) or `clip_high` is negative.
    """
    if not 0 <= clip_low < 1 or clip_high < 0:
        raise ValueError(
            f"self clip is {clip_low} below and {clip_high} above 1: "
            "expected 0 <= clip_low < 1 and clip_high >= 0"
        )
    return ratio_B.clamp(1 - clip_low, 1 + clip_high)


def cross_floor(floor: float | None, floor_step: float, update_index: int) -> float | None:
    """Lower bound of an update's cross ratios: min(1, floor + update_index * floor_step) (Eq. 14).

    Args:
        floor: bound at a step's first update, the paper's 1 - delta; None is no clip.
        floor_step: rise per update; 0 is not stepwise.
        update_index: optimizer updates already done in this step.

    Returns:
        The bound, or None where `floor` is None.

    Raises:
        ValueError: `floor` is outside (0, 1], or `floor_step` or `update_index` is negative.
    """
    if floor_step < 0 or update_index < 0:
        raise ValueError(
            f"floor_step is {floor_step} and update_index {update_index}: neither may be negative"
        )
    if floor is None:
        return None
    _check_floor(floor)
    return min(1.0, floor + update_index * floor_step)


def clip_cross(ratio_B: Tensor, floor: float | None) -> Tensor:
    """The ratio within [floor, 1], or as it is where `floor` is None (Eq. 13).

    Args:
        ratio_B: [B] ratios above 0.
        floor: of this update, from `cross_floor`.

    Raises:
        ValueError: `floor` is outside (0, 1].
    """
    if floor is None:
        return ratio_B
    _check_floor(floor)
    return ratio_B.clamp(floor, 1.0)


def _check_floor(floor: float) -> None:
    if not 0 < floor <= 1:
        raise ValueError(
            f"floor is {floor}: it must be above 0 and at most 1 (floor = 1 - the text's delta)"
        )
