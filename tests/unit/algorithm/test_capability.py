"""Axes: B rows."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hacpo.algorithm import capability_ratio, modulation, smoothed_capability

NAN = math.nan
capabilities = st.lists(st.floats(1e-8, 1.0), min_size=2, max_size=4)


def test_capability_is_the_mean_of_the_last_window_steps() -> None:
    history = [[0.9, 0.1, 0.2, 0.6], [0.5]]
    # (0.1 + 0.2 + 0.6) / 3 = 0.3; one step only = itself
    assert smoothed_capability(history, window=3, minimum=1e-8) == pytest.approx([0.3, 0.5])


def test_an_ungraded_step_adds_nothing_and_leaves_the_older_step_in_the_window() -> None:
    graded_only = smoothed_capability([[0.9, 0.1, 0.2]], window=2, minimum=1e-8)
    assert smoothed_capability([[0.9, 0.1, NAN, 0.2, NAN]], 2, 1e-8) == graded_only
    assert graded_only == pytest.approx([0.15])  # (0.1 + 0.2) / 2


def test_no_graded_step_and_only_wrong_answers_give_the_minimum() -> None:
    assert smoothed_capability([[], [NAN, NAN], [0.0, 0.0]], 5, 1e-8) == [1e-8] * 3


@pytest.mark.parametrize(("window", "minimum"), [(0, 1e-8), (5, 0.0), (5, -1.0), (5, NAN)])
def test_window_and_minimum_must_be_positive(window: int, minimum: float) -> None:
    with pytest.raises(ValueError, match="capability"):
        smoothed_capability([[0.5]], window, minimum)


def test_capability_ratio_is_a_quotient_within_its_bounds() -> None:
    capability = [0.2, 0.5, 1e-8]
    assert capability_ratio(capability, 0, over=1) == pytest.approx(0.4)  # 0.2 / 0.5
    assert capability_ratio(capability, 1, over=0) == pytest.approx(2.5)  # 0.5 / 0.2
    assert capability_ratio(capability, 0, over=2) == 10.0  # 2e7, bounded
    assert capability_ratio(capability, 2, over=0) == 0.1  # 5e-8, bounded
    assert capability_ratio(capability, 1, over=0, low=0.5, high=2.0) == 2.0


@settings(max_examples=50, deadline=None)
@given(capabilities)
def test_an_agent_over_itself_has_ratio_exactly_1(capability: list[float]) -> None:
    assert [capability_ratio(capability, a, over=a) for a in range(len(capability))] == [
        1.0 for _ in capability
    ]


@settings(max_examples=50, deadline=None)
@given(capabilities)
def test_exchanging_the_agents_inverts_the_ratio(capability: list[float]) -> None:
    forward = capability_ratio(capability, 0, over=1)
    assert 0.1 <= forward <= 10.0
    assert forward * capability_ratio(capability, 1, over=0) == pytest.approx(1.0)


def test_capability_ratio_refuses_a_zero_capability_and_bounds_without_1() -> None:
    with pytest.raises(ValueError, match=r"agent 1 is 0\.0"):
        capability_ratio([0.5, 0.0], 0, over=1)
    with pytest.raises(ValueError, match="must hold 1"):
        capability_ratio([0.5, 0.5], 0, over=1, low=2.0)


def test_modulation_is_the_source_over_the_learner_on_cross_rows_and_1_on_self_rows() -> None:
    source_B = torch.tensor([0, 1, 2, 1])
    modulation_B = modulation([0.2, 0.5, 1e-8], 1, source_B, dtype=torch.float64)
    # 0.2 / 0.5; self; 2e-8 bounded; self
    expected_B = torch.tensor([0.4, 1.0, 0.1, 1.0], dtype=torch.float64)
    torch.testing.assert_close(modulation_B, expected_B)
    assert modulation_B[1] == 1.0


def test_modulation_off_is_1_for_every_row() -> None:
    modulation_B = modulation([0.2, 0.5], 1, torch.tensor([0, 1, 0]), enabled=False)
    assert modulation_B.tolist() == [1.0, 1.0, 1.0]


def test_modulation_refuses_a_mask_instead_of_indices() -> None:
    with pytest.raises(ValueError, match="integer agent indices"):
        modulation([0.2, 0.5], 1, torch.tensor([True, False]))
