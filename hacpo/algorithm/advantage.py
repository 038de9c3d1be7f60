"""Baseline and advantages of joint groups (Sec. 3.1).

Axes: P problems, N agents as sources, G rollouts of one source for one problem. A NaN reward is
an ungraded response: it takes part in no mean and no deviation, and its advantage is 0.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from hacpo.algorithm.capability import capability_ratio


def shared_advantages(
    rewards_PNG: Tensor,
    learner: int,
    capability: Sequence[float],
    *,
    ratio_low: float = 0.1,
    ratio_high: float = 10.0,
    epsilon: float = 1e-6,
    capability_aware: bool = True,
    normalize: bool = True,
    guard_baseline: bool = True,
) -> tuple[Tensor, Tensor]:
    """Advantages of all N*G responses to each problem, as one learner sees them (Eq. 5-9).

    Args:
        rewards_PNG: [P, N, G] floats, NaN where ungraded.
        learner: index along N of the agent that is updated.
        capability: one positive number per agent (`smoothed_capability`).
        ratio_low: lower bound of the capability ratio.
        ratio_high: upper bound of the capability ratio.
        epsilon: added to the deviation, in reward units.
        capability_aware: False is the ablation of mechanism 1: the plain mean of the joint group.
        normalize: divide by the unweighted deviation (ddof=1) of the joint group plus epsilon.
        guard_baseline: where a problem's graded rewards all lie in [0, 1], a baseline above 1
            is replaced by the mean of the learner's own graded rewards, if it has any.

    Returns:
        advantages [P, N, G] and the learner's baseline [P], in the rewards' dtype. A joint group
        whose graded rewards are all equal (or fewer than two) has advantages of exactly 0 and its
        plain mean as baseline; the baseline of a problem without graded responses is 0.

    Raises:
        ValueError: the rewards are not a floating [P, N, G], or `learner` or `capability` does
            not fit their N agents.
    """
    _check(rewards_PNG, learner, capability)
    graded_PNG = ~rewards_PNG.isnan()
    known_PNG = torch.where(graded_PNG, rewards_PNG, 0.0)
    count_P = graded_PNG.sum(dim=(1, 2))
    mean_P = known_PNG.sum(dim=(1, 2)) / count_P.clamp(min=1)
    highest_P = torch.where(graded_PNG, rewards_PNG, -torch.inf).amax(dim=(1, 2))
    lowest_P = torch.where(graded_PNG, rewards_PNG, torch.inf).amin(dim=(1, 2))
    # Also true of a single graded response, and of none: -inf <= inf.
    uniform_P = highest_P <= lowest_P

    baseline_P = mean_P
    if capability_aware:
        weight_N = rewards_PNG.new_tensor(
            [
                capability_ratio(capability, learner, source, ratio_low, ratio_high)
                for source in range(len(capability))
            ]
        )
        weighted_PNG = known_PNG * weight_N[None, :, None]
        baseline_P = weighted_PNG.sum(dim=(1, 2)) / count_P.clamp(min=1)
        if guard_baseline:
            own_count_P = graded_PNG[:, learner].sum(dim=1)
            own_mean_P = known_PNG[:, learner].sum(dim=1) / own_count_P.clamp(min=1)
            bounded_P = ((known_PNG >= 0) & (known_PNG <= 1)).flatten(1).all(dim=1)
            guarded_P = bounded_P & (own_count_P > 0) & (baseline_P > 1)
            baseline_P = torch.where(guarded_P, own_mean_P, baseline_P)
        # No weight can tell equal rewards apart, so their baseline is what makes them centred.
        baseline_P = torch.where(uniform_P, mean_P, baseline_P)

    advantages_PNG = known_PNG - baseline_P[:, None, None]
    if normalize:
        deviation_PNG = torch.where(graded_PNG, known_PNG - mean_P[:, None, None], 0.0)
        variance_P = deviation_PNG.square().sum(dim=(1, 2)) / (count_P - 1).clamp(min=1)
        advantages_PNG = advantages_PNG / (variance_P.sqrt() + epsilon)[:, None, None]
    silent_PNG = ~graded_PNG | uniform_P[:, None, None]
    return torch.where(silent_PNG, 0.0, advantages_PNG), baseline_P


def joint_advantages(
    rewards_PNG: Tensor,
    learner: int,
    capability: Sequence[float],
    *,
    baseline_of: Literal["learner", "source"] = "learner",
    ratio_low: float = 0.1,
    ratio_high: float = 10.0,
    epsilon: float = 1e-6,
    capability_aware: bool = True,
    normalize: bool = True,
    guard_baseline: bool = True,
) -> tuple[Tensor, Tensor]:
    """`shared_advantages` with a choice of whose baseline serves the cross rows.

    `baseline_of="learner"` is Eq. 50 and the authors' code; `"source"` is a reading of Eq. 10: the
    rows of each source are centred by that source's own baseline. Self rows are the same in both.

    Returns:
        advantages [P, N, G] and the learner's baseline [P], whichever serves the cross rows.

    Raises:
        ValueError: `baseline_of` is neither, or see `shared_advantages`.
    """
    if baseline_of not in ("learner", "source"):
        raise ValueError(f"baseline_of is {baseline_of!r}: choose learner or source")

    def as_seen_by(agent: int) -> tuple[Tensor, Tensor]:
        return shared_advantages(
            rewards_PNG,
            agent,
            capability,
            ratio_low=ratio_low,
            ratio_high=ratio_high,
            epsilon=epsilon,
            capability_aware=capability_aware,
            normalize=normalize,
            guard_baseline=guard_baseline,
        )

    advantages_PNG, baseline_P = as_seen_by(learner)
    if baseline_of == "source":
        own_PG = [as_seen_by(source)[0][:, source] for source in range(len(capability))]
        advantages_PNG = torch.stack(own_PG, dim=1)
    return advantages_PNG, baseline_P


def group_advantages(rewards_PG: Tensor, *, epsilon: float = 1e-6) -> tuple[Tensor, Tensor]:
    """Advantages of one agent alone (grpo, gspo): reward minus group mean over deviation (ddof=1).

    This is `shared_advantages` with one agent, so the two agree bit for bit.

    Args:
        rewards_PG: [P, G] floats, NaN where ungraded.
        epsilon: added to the deviation, in reward units.

    Returns:
        advantages [P, G] and baseline [P].

    Raises:
        ValueError: the rewards are not a floating [P, G].
    """
    if rewards_PG.dim() != 2:
        raise ValueError(f"rewards_PG has shape {tuple(rewards_PG.shape)}: expected [P, G]")
    advantages_PNG, baseline_P = shared_advantages(rewards_PG[:, None], 0, [1.0], epsilon=epsilon)
    return advantages_PNG[:, 0], baseline_P


def _check(rewards_PNG: Tensor, learner: int, capability: Sequence[float]) -> None:
    if rewards_PNG.dim() != 3 or not rewards_PNG.is_floating_point():
        found = f"{rewards_PNG.dtype} of shape {tuple(rewards_PNG.shape)}"
        raise ValueError(f"rewards_PNG is {found}: expected floats of shape [P, N, G]")
    num_agents = rewards_PNG.shape[1]
    if len(capability) != num_agents:
        raise ValueError(f"{len(capability)} capabilities for the rewards of {num_agents} agents")
    if not 0 <= learner < num_agents:
        raise ValueError(f"learner is {learner}: expected an agent of 0..{num_agents - 1}")
