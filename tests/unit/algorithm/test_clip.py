"""Axes: B rows."""

import pytest
import torch

from hacpo.algorithm import clip_cross, clip_self, cross_floor


def _gradient(clipped_B: torch.Tensor, ratio_B: torch.Tensor) -> list[float]:
    values: list[float] = torch.autograd.grad(clipped_B.sum(), ratio_B)[0].tolist()
    return values


def test_self_clip_bounds_on_both_sides_of_1_without_gradient_beyond() -> None:
    ratio_B = torch.tensor([0.5, 0.9, 1.0, 1.2, 1.5], dtype=torch.float64, requires_grad=True)
    clipped_B = clip_self(ratio_B, 0.2, 0.28)
    assert clipped_B.tolist() == pytest.approx([0.8, 0.9, 1.0, 1.2, 1.28])
    assert _gradient(clipped_B, ratio_B) == [0.0, 1.0, 1.0, 1.0, 0.0]


def test_cross_clip_bounds_by_the_floor_and_1_without_gradient_beyond() -> None:
    ratio_B = torch.tensor([0.5, 0.85, 1.0, 1.2], dtype=torch.float64, requires_grad=True)
    clipped_B = clip_cross(ratio_B, 0.8)
    assert clipped_B.tolist() == [0.8, 0.85, 1.0, 1.0]
    assert _gradient(clipped_B, ratio_B) == [0.0, 1.0, 1.0, 0.0]


def test_no_floor_leaves_the_cross_ratio_free() -> None:
    ratio_B = torch.tensor([1e-4, 0.5, 3.0, 2e4])
    assert torch.equal(clip_cross(ratio_B, None), ratio_B)


def test_the_floor_rises_by_its_step_with_every_update_up_to_1() -> None:
    floors = [cross_floor(0.8, 0.05, update_index) for update_index in range(6)]
    assert floors == pytest.approx([0.8, 0.85, 0.9, 0.95, 1.0, 1.0])
    assert max(floor for floor in floors if floor is not None) <= 1.0


def test_step_0_is_not_stepwise_and_no_floor_stays_no_floor() -> None:
    assert [cross_floor(0.9, 0.0, update_index) for update_index in range(3)] == [0.9] * 3
    assert [cross_floor(None, 0.05, update_index) for update_index in range(3)] == [None] * 3


@pytest.mark.parametrize("floor", [0.0, -0.1, 1.1])
def test_a_floor_outside_0_and_1_is_refused(floor: float) -> None:
    with pytest.raises(ValueError, match="floor = 1 - the text's delta"):
        cross_floor(floor, 0.01, 0)
    with pytest.raises(ValueError, match="floor = 1 - the text's delta"):
        clip_cross(torch.ones(1), floor)


def test_negative_steps_updates_and_clips_are_refused() -> None:
    with pytest.raises(ValueError, match="neither may be negative"):
        cross_floor(0.8, -0.01, 0)
    with pytest.raises(ValueError, match="neither may be negative"):
        cross_floor(None, 0.01, -1)
    with pytest.raises(ValueError, match="self clip"):
        clip_self(torch.ones(1), -0.1, 0.1)
    with pytest.raises(ValueError, match="self clip"):
        clip_self(torch.ones(1), 1.0, 0.1)
