"""Reading an agent's weights into a policy."""

from typing import Any

import torch
from transformers import AutoModelForCausalLM

from hacpo.errors import DataError
from hacpo.models.policy import Policy
from hacpo.models.probe import check_reading
from hacpo.models.saving import no_progress_bars
from hacpo.models.tokens import AgentTokens
from hacpo.settings import AgentConfig


def load_policy(
    agent: str,
    config: AgentConfig,
    tokens: AgentTokens,
    model: str,
    device: str,
    temperature: float,
) -> Policy:
    """Read an agent's weights from a folder; safetensors only, float32 whatever it holds.

    Raises:
        DataError: missing or unreadable weights, or a model that this project cannot read right.
    """
    try:
        with no_progress_bars():
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                model, dtype=torch.float32, use_safetensors=True, attn_implementation="sdpa"
            )
    except (OSError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise DataError(
            f"agent {agent!r}: weights of {model} cannot be loaded: {reason}"
        ) from error
    loaded.eval()  # no dropout: a ratio compares the same function at two sets of weights
    policy = Policy(loaded.to(device), tokens, temperature, getattr(torch, config.dtype))
    check_reading(agent, policy)
    return policy
