"""Attention of one new token per row on a CPU, without a copy of the cache.

Where query heads share key heads, transformers repeats keys and values for each of them before it
computes: at every token, a copy of the whole cache as large as all that is read. Here the query
heads of a group stand side by side in one product.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

NAME = "hacpo_grouped"


def grouped_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **options: Any,
) -> tuple[Tensor, Tensor | None]:
    """What `sdpa` computes, and by it, but for one new token per row on a CPU.

    Args:
        module: the attention layer.
        query: [R, H, L, D].
        key: [R, G, T, D]; H is a multiple of G.
        value: as `key`.
        attention_mask: [R or 1, 1, L, T]; True, or 0, is seen.
        scaling: of the scores; default 1 / sqrt(D).
        options: passed on to sdpa.
    Returns:
        [R, L, H, D], None.
    """
    rows, heads, new, width = query.shape
    unusual = options.get("softcap") or options.get("s_aux") is not None
    if new != 1 or query.device.type != "cpu" or unusual:
        return sdpa_attention_forward(  # type: ignore[no-any-return]
            module, query, key, value, attention_mask, scaling=scaling, **options
        )
    # The query heads of a group as if they were positions; one new token sees all that came before.
    groups = key.shape[1]
    grouped = query.reshape(rows, groups, heads // groups, width)
    seen = torch.nn.functional.scaled_dot_product_attention(
        grouped, key, value, attn_mask=attention_mask, scale=scaling
    )
    return seen.reshape(rows, 1, heads, value.shape[-1]), None


AttentionInterface.register(NAME, grouped_attention)
AttentionMaskInterface.register(NAME, sdpa_mask)


@contextlib.contextmanager
def decoding_attention(model: Any) -> Iterator[None]:
    """Within, a model that uses sdpa uses `grouped_attention`."""
    config = model.config.get_text_config()
    before = config._attn_implementation
    if before == "sdpa":
        config._attn_implementation = NAME
    try:
        yield
    finally:
        config._attn_implementation = before
