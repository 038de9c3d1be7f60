"""How able each agent is of late, and how one agent's ability compares with another's.

Axes: B rows (one rollout as one learner reads it).
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def smoothed_capability(
    history: Sequence[Sequence[float]], window: int, minimum: float
) -> list[float]:
    """Mean of each agent's last `window` graded steps, at least `minimum` (Eq. 5-6).

    Args:
        history: `history[agent]` holds the mean reward of each of its steps, oldest first, the
            current one included. NaN stands for a step without any graded response: it adds
            nothing, so an older graded step stays in the window in its place.
        window: K, in graded steps.
        minimum: positive bound; also the capability of an agent without any graded step.

    Returns:
        One capability per agent, in reward units.

    Raises:
        ValueError: `window` is below 1 or `minimum` is not positive.
    """
    if window < 1:
        raise ValueError(f"capability window is {window}: it must hold at least one step")
    if not minimum > 0:
        raise ValueError(f"capability minimum is {minimum}: it divides, so it must be above 0")
    capability = []
    for step_means in history:
        recent = [mean for mean in step_means if not math.isnan(mean)][-window:]
        mean = math.fsum(recent) / len(recent) if recent else minimum
        capability.append(max(mean, minimum))
    return capability


def capability_ratio(
    capability: Sequence[float], a: int, over: int, low: float = 0.1, high: float = 10.0
) -> float:
    """capability[a] / capability[over], clipped to [low, high] (Eq. 7).

    Exactly 1 for an agent over itself, whatever its capability.

    Raises:
        ValueError: a capability is not positive, or the bounds do not hold 1.
    """
    if not low <= 1 <= high:
        raise ValueError(
            f"capability ratio bounds are [{low}, {high}]: they must hold 1, "
            "the ratio of equally able agents"
        )
    for agent in (a, over):
        if not capability[agent] > 0:
            raise ValueError(
                f"capability of agent {agent} is {capability[agent]}: it must be above 0 "
                "(smoothed_capability bounds it below)"
            )
    return min(max(capability[a] / capability[over], low), high)


def modulation(
    capability: Sequence[float],
    learner: int,
    source_B: Tensor,
    *,
    ratio_low: float = 0.1,
    ratio_high: float = 10.0,
    enabled: bool = True,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Capability discrepancy coefficient: what each row's objective is multiplied by (Eq. 10).

    Args:
        capability: one positive number per agent.
        learner: index of the agent that is updated.
        source_B: [B] integer index of the agent that sampled each row.
        ratio_low: lower bound of the capability ratio.
        ratio_high: upper bound of the capability ratio.
        enabled: False is the ablation of mechanism 2: 1 for every row.
        dtype: of the result.

    Returns:
        [B] capability_ratio(source over learner) on cross rows and 1 on self rows.

    Raises:
        ValueError: `source_B` does not hold integers, or see `capability_ratio`.
        IndexError: an index names no agent.
    """
    if source_B.is_floating_point() or source_B.dtype == torch.bool:
        raise ValueError(f"source_B is {source_B.dtype}: it must hold integer agent indices")
    if not enabled:
        return torch.ones(source_B.shape, dtype=dtype, device=source_B.device)
    ratio_N = [
        capability_ratio(capability, source, learner, ratio_low, ratio_high)
        for source in range(len(capability))
    ]
    return torch.tensor(ratio_N, dtype=dtype, device=source_B.device)[source_B.long()]
