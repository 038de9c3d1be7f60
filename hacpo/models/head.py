"""Log-probabilities from hidden states, without ever holding the logits of a whole vocabulary.

The vocabulary is read slice by slice: forward keeps running sums, backward computes each slice of
logits again, so memory is that of one slice. Axes: N tokens, D width, V vocabulary.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

SLICE_ELEMENTS = 1 << 22
"""Logits held at a time: 16 MB in float32."""


Sink = Callable[[int, int, Tensor], None]
"""Adds to the rows start to stop of a weight's gradient."""


@dataclass(frozen=True, slots=True)
class Head:
    """A model's output layer: logits are `softcap(hidden @ weight.T + bias) * scale`."""

    weight_VD: Tensor
    bias_V: Tensor | None = None
    scale: float = 1.0
    """What the model multiplies its logits with, over the sampling temperature."""
    softcap: float | None = None
    """Gemma 2: logits are bounded by softcap * tanh(logits / softcap)."""
    sink: Sink | None = None
    """Takes the weight's gradient, slice by slice, in place of autograd."""


def token_logprobs(
    hidden_ND: Tensor, head: Head, targets_N: Tensor, *, with_entropy: bool = False
) -> tuple[Tensor, Tensor]:
    """Log-probability of each target token and the entropy of its distribution.

    Args:
        hidden_ND: last hidden states, in the computing dtype.
        head: output layer.
        targets_N: token ids.
        with_entropy: otherwise zeros, for less work.
    Returns:
        float32 [N] log-probabilities, with a gradient to hidden states, weight and bias;
        float32 [N] entropies in nats, without.
    """
    logprobs, entropy = _TokenLogprobs.apply(  # type: ignore[no-untyped-call]
        hidden_ND, head.weight_VD, head.bias_V, targets_N, head, with_entropy
    )
    return logprobs, entropy


class _TokenLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden_ND: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor | None,
        targets_N: Tensor,
        head: Head,
        with_entropy: bool,
    ) -> tuple[Tensor, Tensor]:
        count = len(hidden_ND)
        normalizer_N = hidden_ND.new_full((count,), -torch.inf, dtype=torch.float32)
        picked_N = hidden_ND.new_zeros(count, dtype=torch.float32)
        mean_logit_N = hidden_ND.new_zeros(count, dtype=torch.float32)
        for start, stop in _slices(weight_VD, count):
            logits = _logits(hidden_ND, weight_VD, bias_V, head, start, stop)
            inside = (targets_N >= start) & (targets_N < stop)
            rows = inside.nonzero().squeeze(1)
            picked_N[rows] = logits[rows, targets_N[rows] - start]
            part_N = torch.logsumexp(logits, dim=1)
            merged_N = torch.logaddexp(normalizer_N, part_N)
            if with_entropy:
                share = (normalizer_N - merged_N).exp()
                within = (logits - merged_N.unsqueeze(1)).exp_()
                mean_logit_N = mean_logit_N * share + (within.mul_(logits)).sum(1)
            normalizer_N = merged_N
        ctx.save_for_backward(hidden_ND, weight_VD, bias_V, targets_N, normalizer_N)
        ctx.head = head
        entropy_N = normalizer_N - mean_logit_N if with_entropy else torch.zeros_like(normalizer_N)
        ctx.mark_non_differentiable(entropy_N)
        return picked_N - normalizer_N, entropy_N

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        hidden_ND, weight_VD, bias_V, targets_N, normalizer_N = ctx.saved_tensors
        grad_N, head = grads[0].float(), ctx.head
        grad_hidden = torch.zeros_like(hidden_ND, dtype=torch.float32)
        needs_weight, needs_bias = ctx.needs_input_grad[1], ctx.needs_input_grad[2]
        sink = head.sink if needs_weight else None
        grad_weight = torch.empty_like(weight_VD) if needs_weight and sink is None else None
        grad_bias = torch.empty_like(bias_V) if needs_bias else None
        for start, stop in _slices(weight_VD, len(hidden_ND)):
            logits = _logits(hidden_ND, weight_VD, bias_V, head, start, stop)
            bend = 1 - (logits / (head.scale * head.softcap)) ** 2 if head.softcap else None
            # of log-softmax: onehot - probability
            slope = logits.sub_(normalizer_N.unsqueeze(1)).exp_().neg_()
            rows = ((targets_N >= start) & (targets_N < stop)).nonzero().squeeze(1)
            slope[rows, targets_N[rows] - start] += 1.0
            slope.mul_((grad_N * head.scale).unsqueeze(1))
            if bend is not None:
                slope.mul_(bend)
            slope = slope.to(hidden_ND.dtype)
            grad_hidden += slope @ weight_VD[start:stop]
            if sink is not None:
                sink(start, stop, slope.t() @ hidden_ND)
            if grad_weight is not None:
                torch.mm(slope.t(), hidden_ND, out=grad_weight[start:stop])
            if grad_bias is not None:
                grad_bias[start:stop] = slope.sum(0)
        return grad_hidden.to(hidden_ND.dtype), grad_weight, grad_bias, None, None, None


def _slices(weight_VD: Tensor, count: int) -> Iterator[tuple[int, int]]:
    size, vocabulary = max(256, SLICE_ELEMENTS // max(1, count)), len(weight_VD)
    for start in range(0, vocabulary, size):
        yield start, min(start + size, vocabulary)


def _logits(
    hidden_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None, head: Head, start: int, stop: int
) -> Tensor:
    """[N, stop - start] float32, as the model says them at the sampling temperature."""
    bias = None if bias_V is None else bias_V[start:stop]
    logits = torch.nn.functional.linear(hidden_ND, weight_VD[start:stop], bias).float()
    if head.softcap:
        logits = logits.div_(head.softcap).tanh_().mul_(head.softcap)
    return logits if head.scale == 1.0 else logits.mul_(head.scale)
