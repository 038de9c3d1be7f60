"""One agent's weights: log-probabilities of responses, and saving as an ordinary model folder.

Axes: B rows, T response tokens (padded on the right), V vocabulary.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from hacpo.errors import DataError
from hacpo.models.saving import no_progress_bars, save_model
from hacpo.models.tokens import AgentTokens
from hacpo.settings import AgentConfig
from hacpo.types import View


class Scores(NamedTuple):
    """What the trainer's weights say about some rows."""

    logprobs_BT: Tensor
    """At the sampling temperature; 0 where `mask_BT` is False."""
    mask_BT: Tensor
    """True at response tokens."""
    entropy_BT: Tensor
    """Of the next-token distribution, detached, nats; 0 where `mask_BT` is False."""


class Policy:
    """A Hugging Face causal language model and the way this project reads it."""

    def __init__(self, model: nn.Module, tokens: AgentTokens, temperature: float) -> None:
        self.model = model
        self.tokens = tokens
        self.temperature = temperature

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def score(self, views: list[View]) -> Scores:
        """Log-probabilities of the responses, given their prompts.

        Prompts are padded on the left and responses on the right, so that every response starts
        in the same column and only the last T + 1 positions reach the output layer.
        """
        batch = _pad(views, self.tokens.pad_id, self.device)
        width = batch.response_BT.shape[1]
        output = self.model(
            input_ids=batch.input_ids,
            attention_mask=batch.attention_mask,
            position_ids=batch.position_ids,
            logits_to_keep=width + 1,
            use_cache=False,
        )
        logits_BTV = output.logits[:, :-1].float() / self.temperature
        all_logprobs_BTV = torch.log_softmax(logits_BTV, dim=-1)
        picked_BT = all_logprobs_BTV.gather(-1, batch.response_BT.unsqueeze(-1)).squeeze(-1)
        with torch.no_grad():
            entropy_BT = -(all_logprobs_BTV.exp() * all_logprobs_BTV).sum(-1)
        mask_BT = batch.mask_BT
        return Scores(
            torch.where(mask_BT, picked_BT, 0.0), mask_BT, torch.where(mask_BT, entropy_BT, 0.0)
        )

    def save(self, folder: Path) -> None:
        """Write an ordinary model folder: safetensors, config, tokenizer."""
        save_model(self.model, self.tokens.tokenizer, folder)


def load_policy(
    agent: str,
    config: AgentConfig,
    tokens: AgentTokens,
    model: str,
    device: str,
    temperature: float,
) -> Policy:
    """Read an agent's weights from a folder or hub id; safetensors only.

    Raises:
        DataError: missing or unreadable weights.
    """
    try:
        with no_progress_bars():
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                model,
                revision=config.revision or "main",
                dtype=getattr(torch, config.dtype),
                use_safetensors=True,
            )
    except (OSError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise DataError(
            f"agent {agent!r}: weights of {model} cannot be loaded: {reason}"
        ) from error
    loaded.eval()  # no dropout: a ratio compares the same function at two sets of weights
    return Policy(loaded.to(device), tokens, temperature)


def micro_batches(views: list[View], rows: int) -> Iterator[list[View]]:
    """Rows of similar length together, at most `rows` at a time."""
    by_length = sorted(views, key=lambda v: (len(v.response_ids), len(v.prompt_ids), v.rollout_id))
    for start in range(0, len(by_length), rows):
        yield by_length[start : start + rows]


class _Padded(NamedTuple):
    input_ids: Tensor
    attention_mask: Tensor
    position_ids: Tensor
    response_BT: Tensor
    mask_BT: Tensor


def _pad(views: list[View], pad_id: int, device: torch.device) -> _Padded:
    prompt_width = max(len(v.prompt_ids) for v in views)
    width = max(len(v.response_ids) for v in views)
    ids, attention, response = [], [], []
    for view in views:
        left = prompt_width - len(view.prompt_ids)
        right = width - len(view.response_ids)
        ids.append([pad_id] * left + view.prompt_ids + view.response_ids + [pad_id] * right)
        attention.append([0] * left + [1] * (prompt_width + width - left - right) + [0] * right)
        response.append(view.response_ids + [0] * right)
    attention_mask = torch.tensor(attention, device=device)
    lengths = torch.tensor([len(v.response_ids) for v in views], device=device)
    return _Padded(
        input_ids=torch.tensor(ids, device=device),
        attention_mask=attention_mask,
        position_ids=(attention_mask.cumsum(-1) - 1).clamp(min=0),
        response_BT=torch.tensor(response, device=device),
        mask_BT=torch.arange(width, device=device) < lengths.unsqueeze(1),
    )
