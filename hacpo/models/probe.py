"""Whether a model is read right: this project's fast path against the model's own forward pass.

Asked of every model when it is loaded. A kind of attention or output layer that the fast path does
not know shows here, and not as a slightly wrong ratio.
"""

import logging

import torch
from torch import Tensor

from hacpo.errors import DataError
from hacpo.models.policy import Policy
from hacpo.types import View

logger = logging.getLogger(__name__)

TOLERANCE = 5e-3
"""Of one token's log-probability in nats and float32; a wrong mask or head is off by much more."""


@torch.no_grad()
def check_reading(agent: str, policy: Policy) -> bool:
    """Compare on rows that share a prompt; without sharing if only that is wrong.

    Args:
        agent: its id, for messages.
        policy: computing in float32.
    Returns:
        Whether prompts may be shared.

    Raises:
        DataError: the model cannot be read right.
    """
    vocabulary = policy.model.get_input_embeddings().num_embeddings
    spread = [(7 * i + 3) % min(vocabulary, 997) for i in range(24)]
    prompt, responses = spread[:6], (spread[6:9], spread[9:17], spread[17:])
    views = [
        View(rollout_id=str(i), problem_id="", source="", prompt_ids=prompt, response_ids=response)
        for i, response in enumerate(responses)
    ]
    expected = [_plain(policy, view) for view in views]
    for policy.shares_prompts in (True, False):
        off = _difference(policy, views, expected)
        if off < TOLERANCE:
            if not policy.shares_prompts:
                logger.warning("agent %r: its prompts are computed once for each row", agent)
            return policy.shares_prompts
    raise DataError(
        f"agent {agent!r}: log-probabilities of {type(policy.model).__name__} come out wrong by "
        f"{off:.2g} nats: its attention or output layer is of a kind that is not known here"
    )


def _difference(policy: Policy, views: list[View], expected: list[Tensor]) -> float:
    try:
        logprobs_BT, mask_BT, _ = policy.score(views)
    except Exception:  # a model of a person's own may fail in any way on a mask or layer
        return float("inf")
    pairs = zip(logprobs_BT, mask_BT, expected, strict=True)
    return max(float((row[mask] - plain).abs().max()) for row, mask, plain in pairs)


def _plain(policy: Policy, view: View) -> Tensor:
    ids = torch.tensor([view.prompt_ids + view.response_ids], device=policy.device)
    logits = policy.model(input_ids=ids, use_cache=False).logits[0].float() / policy.temperature
    before = logits[len(view.prompt_ids) - 1 : -1]
    targets = ids[0, len(view.prompt_ids) :].unsqueeze(1)
    return torch.log_softmax(before, -1).gather(1, targets).squeeze(1)
