"""Rows as one forward pass reads them: each prompt once, its responses behind it, side by side.

A pack is a prompt followed by several responses to it. A mask keeps the responses from each other
and positions count from the prompt for each, so every row is computed as if it stood alone, while
the prompt is computed once. Axes: K packs, L tokens of a pack, B rows, T response tokens, N all
response tokens.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from hacpo.types import View


@dataclass(slots=True)
class Pack:
    """A prompt with the rows that answer it."""

    prompt_ids: list[int]
    rows: list[View]
    length: int
    """Tokens that the model reads; a response's last token is only predicted."""


class Batch(NamedTuple):
    """Packs padded on the right to one length."""

    input_ids_KL: Tensor
    position_ids_KL: Tensor
    segment_KL: Tensor
    """0 prompt, 1, 2, ... responses, -1 padding."""
    is_shared: bool
    """Whether some prompt has several responses; if not, causal attention alone is right."""
    predictor_N: Tensor
    """Index into the flattened K * L of the token that predicts each response token."""
    response_N: Tensor
    """The response tokens, row by row in the order of `views`."""
    lengths_B: Tensor


def micro_batches(views: Sequence[View], max_tokens: int, pack_tokens: int) -> Iterator[list[View]]:
    """Rows of similar length together, at most `max_tokens` with padding (or one single pack).

    Args:
        views: rows to be computed.
        max_tokens: budget of one forward and backward pass.
        pack_tokens: length up to which rows of one prompt share a pack; 0 is never. Attention
            grows with its square: a longer one costs more than it saves, if not mostly prompt.
    """
    packs = sorted(make_packs(views, max_tokens, pack_tokens), key=lambda pack: pack.length)
    chosen: list[Pack] = []
    for pack in packs:  # the newest is the longest
        if chosen and (len(chosen) + 1) * pack.length > max_tokens:
            yield [row for each in chosen for row in each.rows]
            chosen = []
        chosen.append(pack)
    if chosen:
        yield [row for each in chosen for row in each.rows]


def make_packs(views: Sequence[View], max_tokens: int, pack_tokens: int) -> list[Pack]:
    """Group rows by prompt, in an order that depends on nothing but the rows; see above."""
    ordered = sorted(views, key=lambda v: (v.prompt_ids, len(v.response_ids), v.rollout_id))
    packs: list[Pack] = []
    for view in ordered:
        added = max(0, len(view.response_ids) - 1)
        last = packs[-1] if packs else None
        limit = min(max_tokens, max(pack_tokens, 2 * len(view.prompt_ids)))
        if (
            pack_tokens
            and last is not None
            and last.prompt_ids == view.prompt_ids
            and last.length + added <= limit
        ):
            last.rows.append(view)
            last.length += added
        else:
            packs.append(Pack(view.prompt_ids, [view], len(view.prompt_ids) + added))
    return packs


def make_batch(views: Sequence[View], pad_id: int, device: torch.device, pack_tokens: int) -> Batch:
    """Tensors of some rows; see `Batch`. Rows keep their order, whatever packs they are in."""
    everything = sum(len(v.prompt_ids) + len(v.response_ids) for v in views)
    packs = make_packs(views, everything, pack_tokens)
    width = max(pack.length for pack in packs)
    is_shared = any(len(pack.rows) > 1 for pack in packs)
    ids, positions, segments = [], [], []
    predictors: dict[int, list[int]] = {}
    for k, pack in enumerate(packs):
        start = len(pack.prompt_ids)
        assert start, "a prompt holds at least one token, which predicts the response's first"
        row_ids, row_positions, row_segments = (
            list(pack.prompt_ids),
            list(range(start)),
            [0] * start,
        )
        for number, view in enumerate(pack.rows, start=1):
            read = view.response_ids[:-1]
            first = k * width + len(row_ids)
            predictors[id(view)] = [k * width + start - 1, *range(first, first + len(read))]
            row_ids += read
            row_positions += range(start, start + len(read))
            row_segments += [number] * len(read)
        pad, end = width - len(row_ids), row_positions[-1] + 1
        ids.append(row_ids + [pad_id] * pad)
        # Without a mask padding goes on counting: a model takes a jump for a new sequence.
        positions.append(row_positions + ([0] * pad if is_shared else list(range(end, end + pad))))
        segments.append(row_segments + [-1] * pad)
    flat = [p for v in views for p in predictors[id(v)][: len(v.response_ids)]]
    return Batch(
        input_ids_KL=torch.tensor(ids, device=device),
        position_ids_KL=torch.tensor(positions, device=device),
        segment_KL=torch.tensor(segments, device=device),
        is_shared=is_shared,
        predictor_N=torch.tensor(flat, dtype=torch.long, device=device),
        response_N=torch.tensor([t for v in views for t in v.response_ids], device=device),
        lengths_B=torch.tensor([len(v.response_ids) for v in views], device=device),
    )


def attention_mask(batch: Batch, window: int | None = None) -> Tensor:
    """[K, 1, L, L] True where a token (row) may look at another (column).

    Args:
        batch: packs.
        window: of sliding attention, in positions; None is full attention.
    """
    segment, position = batch.segment_KL, batch.position_ids_KL
    length = segment.shape[1]
    causal_LL = torch.ones(length, length, dtype=torch.bool, device=segment.device).tril()
    query, key = segment.unsqueeze(2), segment.unsqueeze(1)
    allowed = causal_LL & ((key == 0) | (key == query))
    if window is not None:
        allowed &= position.unsqueeze(2) - position.unsqueeze(1) < window
    return allowed.unsqueeze(1)
