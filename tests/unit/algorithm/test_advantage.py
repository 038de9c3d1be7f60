"""Axes: P problems, N agents as sources, G rollouts of one source for one problem."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from hacpo.algorithm import group_advantages, joint_advantages, shared_advantages

NAN = math.nan
few = settings(max_examples=30, deadline=None)


def png(*problems: list[list[float]]) -> Tensor:
    return torch.tensor(problems, dtype=torch.float64)


@st.composite
def joint_rewards(draw: st.DrawFn) -> tuple[Tensor, int, list[float]]:
    """0/1/NaN rewards of 1-3 problems, 1-4 agents, 1-4 rollouts; a learner; capabilities."""
    shape = draw(st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 4)))
    size = math.prod(shape)
    values = draw(st.lists(st.sampled_from([0.0, 1.0, NAN]), min_size=size, max_size=size))
    agents = shape[1]
    capability = draw(st.lists(st.floats(1e-8, 1.0), min_size=agents, max_size=agents))
    learner = draw(st.integers(0, agents - 1))
    return torch.tensor(values, dtype=torch.float64).view(shape), learner, capability


def test_baseline_and_advantage_by_hand() -> None:
    rewards_PNG = png([[1.0, 0.0], [1.0, 1.0]])
    advantages_PNG, baseline_P = shared_advantages(rewards_PNG, 0, [0.3, 0.6])
    # weights 1 and 0.3 / 0.6 = 0.5: (1 + 0 + 0.5 + 0.5) / 4 = 0.5
    torch.testing.assert_close(baseline_P, png([[0.5]])[:, 0, 0])
    # deviation: mean 0.75, (3 * 0.25^2 + 0.75^2) / 3 = 0.25, root 0.5
    scale = 0.5 / (0.5 + 1e-6)
    torch.testing.assert_close(advantages_PNG, png([[scale, -scale], [scale, scale]]))


def test_without_normalization_the_advantage_is_reward_minus_baseline() -> None:
    rewards_PNG = png([[1.0, 0.0], [1.0, 1.0]])
    advantages_PNG, _ = shared_advantages(rewards_PNG, 0, [0.3, 0.6], normalize=False)
    torch.testing.assert_close(advantages_PNG, png([[0.5, -0.5], [0.5, 0.5]]))


def test_without_mechanism_1_the_baseline_is_the_joint_group_mean() -> None:
    rewards_PNG = png([[1.0, 0.0], [1.0, 1.0]])
    _, baseline_P = shared_advantages(rewards_PNG, 0, [0.3, 0.6], capability_aware=False)
    assert baseline_P.tolist() == [0.75]


@few
@given(joint_rewards(), st.floats(1e-8, 1.0))
def test_equal_capabilities_give_exactly_the_group_mean(
    drawn: tuple[Tensor, int, list[float]], ability: float
) -> None:
    rewards_PNG, learner, capability = drawn
    aware = shared_advantages(rewards_PNG, learner, [ability] * len(capability))
    plain = shared_advantages(rewards_PNG, learner, capability, capability_aware=False)
    for actual, expected in zip(aware, plain, strict=True):
        assert torch.equal(actual, expected)


@few
@given(joint_rewards())
def test_one_agent_alone_equals_its_own_group_bit_for_bit(
    drawn: tuple[Tensor, int, list[float]],
) -> None:
    rewards_PNG, _, capability = drawn
    for rewards_PG in (rewards_PNG[:, 0], rewards_PNG[:, 0].float()):
        alone_PNG, baseline_P = shared_advantages(rewards_PG[:, None], 0, capability[:1])
        group_PG, group_baseline_P = group_advantages(rewards_PG)
        assert torch.equal(alone_PNG[:, 0], group_PG)
        assert torch.equal(baseline_P, group_baseline_P)
        assert group_PG.dtype == rewards_PG.dtype


def test_group_advantages_by_hand() -> None:
    advantages_PG, baseline_P = group_advantages(torch.tensor([[1.0, 0.0]], dtype=torch.float64))
    # mean 0.5, deviation sqrt(2 * 0.25 / 1) = 0.70711
    expected = 0.5 / (math.sqrt(0.5) + 1e-6)
    assert baseline_P.tolist() == [0.5]
    assert advantages_PG[0].tolist() == pytest.approx([expected, -expected])


@pytest.mark.parametrize("reward", [0.0, 1.0, 0.1, 3.0])
@pytest.mark.parametrize("normalize", [True, False])
def test_equal_rewards_give_advantages_of_exactly_0(reward: float, normalize: bool) -> None:
    rewards_PNG = torch.full((1, 3, 3), reward, dtype=torch.float64)
    advantages_PNG, baseline_P = shared_advantages(
        rewards_PNG, 1, [0.2, 0.9, 1e-8], normalize=normalize
    )
    assert torch.equal(advantages_PNG, torch.zeros_like(rewards_PNG))
    assert baseline_P.tolist() == pytest.approx([reward])


def test_fewer_than_two_graded_responses_give_advantages_of_exactly_0() -> None:
    rewards_PNG = png([[NAN, NAN], [NAN, 1.0]], [[NAN, NAN], [NAN, NAN]])
    advantages_PNG, baseline_P = shared_advantages(rewards_PNG, 0, [0.2, 0.9])
    assert torch.equal(advantages_PNG, torch.zeros_like(rewards_PNG))
    assert baseline_P.tolist() == [1.0, 0.0]


@few
@given(joint_rewards())
def test_advantages_are_finite_and_0_where_ungraded(
    drawn: tuple[Tensor, int, list[float]],
) -> None:
    rewards_PNG, learner, capability = drawn
    advantages_PNG, baseline_P = shared_advantages(rewards_PNG, learner, capability)
    assert advantages_PNG.isfinite().all()
    assert baseline_P.isfinite().all()
    assert (advantages_PNG[rewards_PNG.isnan()] == 0).all()


def test_an_ungraded_response_leaves_mean_deviation_and_denominator() -> None:
    with_gap_PNG, with_gap_P = shared_advantages(png([[1.0, 0.0, NAN, 1.0]]), 0, [0.4])
    without_PNG, without_P = shared_advantages(png([[1.0, 0.0, 1.0]]), 0, [0.4])
    torch.testing.assert_close(with_gap_PNG[..., [0, 1, 3]], without_PNG)
    torch.testing.assert_close(with_gap_P, without_P)
    assert without_P.tolist() == pytest.approx([2 / 3])


def test_a_baseline_above_1_is_replaced_by_the_learners_own_mean() -> None:
    rewards_PNG = png([[1.0, 0.0], [1.0, 1.0]])
    # weights 1 and 0.8 / 0.2 = 4: (1 + 4 + 4) / 4 = 2.25
    assert shared_advantages(rewards_PNG, 0, [0.8, 0.2], guard_baseline=False)[1].item() == 2.25
    assert shared_advantages(rewards_PNG, 0, [0.8, 0.2])[1].item() == 0.5


def test_the_guard_needs_rewards_within_0_and_1_and_a_graded_response_of_the_learner() -> None:
    beyond_PNG = png([[2.0, 0.0], [1.0, 1.0]])
    below_PNG = png([[1.0, -1.0], [1.0, 1.0]])
    ungraded_PNG = png([[NAN, NAN], [1.0, 0.0]])
    # (2 + 4 + 4) / 4, (1 - 1 + 4 + 4) / 4, 4 / 2
    for rewards_PNG, baseline in ((beyond_PNG, 2.5), (below_PNG, 2.0), (ungraded_PNG, 2.0)):
        assert shared_advantages(rewards_PNG, 0, [0.8, 0.2])[1].item() == pytest.approx(baseline)


@few
@given(joint_rewards())
def test_a_problem_does_not_depend_on_the_other_problems(
    drawn: tuple[Tensor, int, list[float]],
) -> None:
    rewards_PNG, learner, capability = drawn
    together_PNG, together_P = shared_advantages(rewards_PNG, learner, capability)
    for problem in range(len(rewards_PNG)):
        alone_PNG, alone_P = shared_advantages(rewards_PNG[[problem]], learner, capability)
        torch.testing.assert_close(alone_PNG, together_PNG[[problem]], rtol=1e-14, atol=0)
        torch.testing.assert_close(alone_P, together_P[[problem]], rtol=1e-14, atol=0)


@pytest.mark.parametrize("learner", [0, 1])
def test_a_dead_agent_gives_finite_numbers_by_bounded_ratios(learner: int) -> None:
    rewards_PNG = png([[0.0, 0.0], [1.0, 0.0]])
    _, baseline_P = shared_advantages(rewards_PNG, learner, [1e-8, 0.5])
    # the dead learner sees its peer at weight 0.1; the peer sees zeros at weight 10
    assert baseline_P.item() == pytest.approx([0.1 / 4, 1.0 / 4][learner])


def test_the_sources_baseline_changes_cross_rows_only() -> None:
    rewards_PNG = png([[1.0, 0.0], [1.0, 1.0]])
    by_learner_PNG, baseline_P = joint_advantages(rewards_PNG, 0, [0.3, 0.6], normalize=False)
    by_source_PNG, same_P = joint_advantages(
        rewards_PNG, 0, [0.3, 0.6], normalize=False, baseline_of="source"
    )
    # source 1 weighs source 0 by 2: (2 + 0 + 1 + 1) / 4 = 1, so its rows have 1 - 1 = 0
    torch.testing.assert_close(by_learner_PNG, png([[0.5, -0.5], [0.5, 0.5]]))
    torch.testing.assert_close(by_source_PNG, png([[0.5, -0.5], [0.0, 0.0]]))
    assert baseline_P.tolist() == same_P.tolist() == [0.5]


@few
@given(joint_rewards())
def test_the_learners_baseline_is_the_default_of_joint_advantages(
    drawn: tuple[Tensor, int, list[float]],
) -> None:
    rewards_PNG, learner, capability = drawn
    joint = joint_advantages(rewards_PNG, learner, capability, guard_baseline=False)
    shared = shared_advantages(rewards_PNG, learner, capability, guard_baseline=False)
    for actual, expected in zip(joint, shared, strict=True):
        assert torch.equal(actual, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_rewards_dtype_is_kept(dtype: torch.dtype) -> None:
    outputs = shared_advantages(png([[1.0, 0.0], [1.0, NAN]]).to(dtype), 0, [0.3, 0.6])
    assert [output.dtype for output in outputs] == [dtype, dtype]


def test_misfitting_arguments_are_refused_with_what_was_found() -> None:
    rewards_PNG = png([[1.0, 0.0], [1.0, 1.0]])
    with pytest.raises(ValueError, match="3 capabilities for the rewards of 2 agents"):
        shared_advantages(rewards_PNG, 0, [0.5, 0.5, 0.5])
    with pytest.raises(ValueError, match=r"learner is 2: expected an agent of 0\.\.1"):
        shared_advantages(rewards_PNG, 2, [0.5, 0.5])
    with pytest.raises(ValueError, match=r"torch\.int64"):
        shared_advantages(rewards_PNG.long(), 0, [0.5, 0.5])
    with pytest.raises(ValueError, match=r"expected \[P, G\]"):
        group_advantages(rewards_PNG)
    with pytest.raises(ValueError, match="choose learner or source"):
        joint_advantages(rewards_PNG, 0, [0.5, 0.5], baseline_of="peer")  # type: ignore[arg-type]
