"""The reference engine: the trainer's own model in memory, a batched key-value cache, no copies.

Prompts are computed once and their cache repeated for the samples. Rows that ended leave the batch.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from hacpo.engines.attention import decoding_attention
from hacpo.engines.base import Sample
from hacpo.engines.cache import RoomyCache
from hacpo.engines.packed import packed_linears

BLOCK = 256
"""Tokens whose probabilities are summed before one of them is looked for."""


class HFEngine:
    """Samples from a transformers model that somebody else owns and updates."""

    reads_policy: ClassVar[bool] = True

    def __init__(
        self,
        model: Any,
        *,
        end_ids: tuple[int, ...],
        pad_id: int,
        decode: Callable[[list[int]], str],
        batch_rows: int,
    ) -> None:
        self._model = model
        self._end_ids = end_ids
        self._pad_id = pad_id
        self._decode = decode
        self._batch_rows = batch_rows

    @torch.inference_mode()
    def generate(
        self,
        prompts: list[list[int]],
        num_samples: int,
        *,
        temperature: float,
        max_tokens: int,
        seed: int,
    ) -> list[list[Sample]]:
        """See `hacpo.engines.base.Engine.generate`."""
        if not prompts:
            return []
        generator = torch.Generator().manual_seed(seed)
        uniform = torch.rand(len(prompts), num_samples, max_tokens, generator=generator)
        per_batch = max(1, self._batch_rows // num_samples)
        samples: list[list[Sample]] = []
        rows = min(per_batch, len(prompts)) * num_samples
        with decoding_attention(self._model), packed_linears(self._model, rows):
            for start in range(0, len(prompts), per_batch):
                part = slice(start, start + per_batch)
                samples += self._batch(prompts[part], uniform[part], temperature)
        return samples

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Nothing to do: the trainer's model is this one."""

    def sleep(self) -> None:
        """Nothing to do: no memory is this engine's own between two calls."""

    def close(self) -> None:
        """Nothing to do."""

    def _batch(
        self, prompts: list[list[int]], uniform_PGT: Tensor, temperature: float
    ) -> list[list[Sample]]:
        num_prompts, num_samples, max_tokens = uniform_PGT.shape
        device = next(self._model.parameters()).device
        uniform_RT = uniform_PGT.reshape(-1, max_tokens).to(device)
        rows = torch.arange(num_prompts * num_samples, device=device)
        tokens_RT = torch.full((len(rows), max_tokens), -1, device=device)
        logprobs_RT = torch.zeros(len(rows), max_tokens, device=device)
        ends = torch.tensor(self._end_ids, device=device)

        cache, mask, logits = self._prefill(prompts, max_tokens, device)
        cache.batch_repeat_interleave(num_samples)
        mask = mask.repeat_interleave(num_samples, dim=0)
        logits = logits.repeat_interleave(num_samples, dim=0)
        # One room for the probabilities of all steps: fresh memory for a vocabulary costs more than
        # the arithmetic in it. Float32 logits are overwritten, and need none.
        room = (
            None if logits.dtype == torch.float32 else torch.empty_like(logits, dtype=torch.float32)
        )
        for t in range(max_tokens):
            space = None if room is None else room[: len(rows)]
            picked, logprobs = _pick(logits, uniform_RT[rows, t], temperature, space)
            tokens_RT[rows, t] = picked
            logprobs_RT[rows, t] = logprobs
            alive = ~torch.isin(picked, ends)
            if t + 1 == max_tokens or not bool(alive.any()):
                break
            if int(alive.sum()) * 4 < len(rows) * 3:  # worth the copy of the cache
                keep = alive.nonzero().squeeze(1)
                cache.batch_select_indices(keep)
                rows, mask, picked = rows[keep], mask[keep], picked[keep]
            mask = torch.cat([mask, mask.new_ones(len(rows), 1)], dim=1)
            output = self._model(
                input_ids=picked.unsqueeze(1),
                attention_mask=mask,
                position_ids=mask.sum(1, keepdim=True) - 1,
                past_key_values=cache,
                use_cache=True,
            )
            logits = output.logits[:, -1]
        flat = [
            self._sample(tokens, logprobs)
            for tokens, logprobs in zip(tokens_RT.tolist(), logprobs_RT.tolist(), strict=True)
        ]
        return [flat[p * num_samples : (p + 1) * num_samples] for p in range(num_prompts)]

    def _prefill(
        self, prompts: list[list[int]], max_tokens: int, device: torch.device
    ) -> tuple[RoomyCache, Tensor, Tensor]:
        width = max(len(p) for p in prompts)
        ids = [[self._pad_id] * (width - len(p)) + p for p in prompts]
        mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts], device=device)
        cache = RoomyCache(
            self._model.config.get_text_config().num_hidden_layers, width + max_tokens
        )
        output = self._model(
            input_ids=torch.tensor(ids, device=device),
            attention_mask=mask,
            position_ids=(mask.cumsum(-1) - 1).clamp(min=0),
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        return cache, mask, output.logits[:, -1]

    def _sample(self, tokens: list[int], logprobs: list[float]) -> Sample:
        """Cut a row behind its first end token; rows that ended may have been sampled on."""
        for t, token in enumerate(tokens):
            if token in self._end_ids:
                ids = tokens[: t + 1]
                return Sample(
                    token_ids=ids,
                    logprobs=logprobs[: t + 1],
                    text=self._decode(ids),
                    finish_reason="stop",
                )
        return Sample(
            token_ids=tokens, logprobs=logprobs, text=self._decode(tokens), finish_reason="length"
        )


def _pick(
    logits_RV: Tensor, uniform_R: Tensor, temperature: float, room_RV: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """A token for each row by inverting the cumulative distribution at `uniform_R`.

    One uniform number per row and position, drawn beforehand, so that a row's sample does not
    depend on which other rows are still in the batch. Overwrites `room`, or else float32 logits.
    """
    # Logits of fewer bits become float32 by the subtraction, without a pass of their own.
    if room_RV is None and logits_RV.dtype == torch.float32:
        room_RV = logits_RV
    weights_RV = torch.sub(logits_RV, logits_RV.amax(-1, keepdim=True).float(), out=room_RV)
    if temperature not in (0.0, 1.0):
        weights_RV /= temperature
    weights_RV.exp_()
    if temperature == 0:
        picked_R = weights_RV.argmax(-1)
        total_R = weights_RV.double().sum(1)
    else:
        picked_R, total_R = _invert(weights_RV, uniform_R.double())
    picked_weights_R = weights_RV.gather(1, picked_R.unsqueeze(1)).squeeze(1)
    return picked_R, (picked_weights_R.double() / total_R).log().float()


def _invert(weights_RV: Tensor, uniform_R: Tensor) -> tuple[Tensor, Tensor]:
    """Where the cumulative sum of each row passes `uniform` of its total, and the totals.

    First among sums of blocks, then within one block: the vocabulary is read once.
    """
    rows, vocabulary = weights_RV.shape
    blocks = -(-vocabulary // BLOCK)
    if blocks * BLOCK > vocabulary:
        weights_RV = torch.nn.functional.pad(weights_RV, (0, blocks * BLOCK - vocabulary))
    weights_RKB = weights_RV.view(rows, blocks, BLOCK)
    cumulative_RK = weights_RKB.sum(-1).double().cumsum(-1)
    total_R = cumulative_RK[:, -1]
    threshold_R1 = (uniform_R * total_R).unsqueeze(1)
    block_R1 = torch.searchsorted(cumulative_RK, threshold_R1, right=True).clamp(max=blocks - 1)
    before_R1 = cumulative_RK.gather(1, (block_R1 - 1).clamp(min=0)).masked_fill(block_R1 == 0, 0)
    chosen_RB = weights_RKB[torch.arange(rows, device=block_R1.device), block_R1.squeeze(1)]
    within_RB = before_R1 + chosen_RB.double().cumsum(-1)
    inside_R1 = torch.searchsorted(within_RB, threshold_R1, right=True)
    # Rounding may leave the threshold behind the block's last token that has any probability.
    last_R1 = (chosen_RB > 0).long().cumsum(-1).argmax(-1, keepdim=True)
    picked_R1 = block_R1 * BLOCK + torch.minimum(inside_R1, last_R1)
    return picked_R1.squeeze(1), total_R
