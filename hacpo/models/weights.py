"""Float32 weights that an optimizer moves, and their copy in the dtype that a model computes in.

An update of 1e-6 is below the resolution of most bfloat16 weights: they would never move. So the
model may compute in bfloat16, but what is trained, and what a checkpoint holds, is float32.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

LARGE_ELEMENTS = 1 << 25
"""128 MB in float32: output layers of large vocabularies."""


class Weights:
    """A model's trainable weights.

    Args:
        model: in float32; afterwards its parameters are in `dtype`, and its buffers as they were.
        dtype: of computing.
    """

    def __init__(self, model: nn.Module, dtype: torch.dtype) -> None:
        self._model = model
        self._computing = {n: p for n, p in model.named_parameters() if p.requires_grad}
        self.trained: dict[str, nn.Parameter] = self._computing
        """Float32, by the name that they have in the model."""
        self._is_copied = dtype != torch.float32
        if self._is_copied:
            self.trained = {n: nn.Parameter(p.detach()) for n, p in self._computing.items()}
            for parameter in model.parameters():
                parameter.data = parameter.data.to(dtype)
            for name, parameter in self._computing.items():
                parameter.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
                    self._collector(self.trained[name])
                )

    def publish(self) -> None:
        """Give the model what the optimizer made of the weights."""
        if self._is_copied:
            with torch.no_grad():
                torch._foreach_copy_(list(self._computing.values()), list(self.trained.values()))

    @contextlib.contextmanager
    def in_full_precision(self) -> Iterator[None]:
        """Within, the model's parameters are the float32 weights themselves, e.g. to be saved."""
        if not self._is_copied:
            yield
            return
        computing = {name: parameter.data for name, parameter in self._computing.items()}
        try:
            for name, parameter in self._computing.items():
                parameter.data = self.trained[name].data
            yield
        finally:
            for name, parameter in self._computing.items():
                parameter.data = computing[name]

    def sink(self, parameter: Tensor) -> Callable[[int, int, Tensor], None] | None:
        """For a large weight, what adds rows to its float32 gradient at once.

        Autograd would hold a second gradient of the whole weight while all activations are alive.
        """
        for name, computing in self._computing.items():
            if computing is parameter and computing.numel() >= LARGE_ELEMENTS:
                weight = self.trained[name]
                break
        else:
            return None

        def add(start: int, stop: int, part: Tensor) -> None:
            if weight.grad is None:
                weight.grad = torch.zeros_like(weight)
            weight.grad[start:stop] += part

        return add

    def move(self, device: torch.device) -> None:
        """Put model and weights elsewhere; gradients must be clear."""
        self._model.to(device)
        if self._is_copied:
            for weight in self.trained.values():
                weight.data = weight.data.to(device)

    @staticmethod
    def _collector(weight: nn.Parameter) -> Any:
        """Sums gradients of micro-batches in float32, each freed as soon as it is added."""

        def collect(parameter: Tensor) -> None:
            assert parameter.grad is not None
            if weight.grad is None:
                weight.grad = parameter.grad.float()
            else:
                weight.grad += parameter.grad
            parameter.grad = None

        return collect
