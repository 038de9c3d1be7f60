"""HACPO's mathematics (arXiv 2603.02604) as pure functions of tensors and floats; torch only.

Read in the paper's order:

| file          | paper                     | what                                               |
|---------------|---------------------------|----------------------------------------------------|
| capability.py | Sec. 3.1-3.2, Eq. 5-7, 10 | capability, capability ratio, modulation           |
| advantage.py  | Sec. 3.1, Eq. 5-9         | baseline and advantages of a joint group           |
| ratio.py      | Sec. 3.3, Eq. 11-12       | sequence and token ratios, exponential reweighting |
| clip.py       | Sec. 3.4, Eq. 13-14       | self clip, stepwise cross clip                     |
| objective.py  | Eq. 47-53                 | objective of each row, KL, loss of one update      |
| schedule.py   | Appendix A, Eq. 53        | a step's problems split over updates, denominators |
| stats.py      | Table 6                   | ratio and clip metrics as sums and counts          |

Axes: P problems, N agents as sources, G rollouts of a source for a problem, B rows (one rollout
as one learner reads it), T response tokens. Every function keeps float64 in float64.
"""

from hacpo.algorithm.advantage import group_advantages, joint_advantages, shared_advantages
from hacpo.algorithm.capability import capability_ratio, modulation, smoothed_capability
from hacpo.algorithm.clip import clip_cross, clip_self, cross_floor
from hacpo.algorithm.objective import (
    kl_k3,
    policy_objective,
    token_objective,
    update_loss,
)
from hacpo.algorithm.ratio import mean_logprob, reweight, sequence_ratio, token_ratio
from hacpo.algorithm.schedule import count_updates, loss_denominator, split_updates
from hacpo.algorithm.stats import (
    finish_extremes,
    finish_means,
    merge_extremes,
    merge_statistics,
    ratio_extremes,
    ratio_statistics,
    token_extremes,
    token_statistics,
)

__all__ = [
    "capability_ratio",
    "clip_cross",
    "clip_self",
    "count_updates",
    "cross_floor",
    "finish_extremes",
    "finish_means",
    "group_advantages",
    "joint_advantages",
    "kl_k3",
    "loss_denominator",
    "mean_logprob",
    "merge_extremes",
    "merge_statistics",
    "modulation",
    "policy_objective",
    "ratio_extremes",
    "ratio_statistics",
    "reweight",
    "sequence_ratio",
    "shared_advantages",
    "smoothed_capability",
    "split_updates",
    "token_extremes",
    "token_objective",
    "token_ratio",
    "token_statistics",
    "update_loss",
]
