"""A key-value cache that is allocated once: a decoding step writes its token, it copies nothing."""

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer


class RoomyCache(Cache):  # type: ignore[misc]
    """Room for `capacity` tokens in every layer.

    Layers of sliding attention keep all tokens, too: which of them are seen is the mask's business.
    """

    def __init__(self, num_layers: int, capacity: int) -> None:
        super().__init__(layers=[_RoomyLayer(capacity) for _ in range(num_layers)])


class _RoomyLayer(DynamicLayer):  # type: ignore[misc]
    def __init__(self, capacity: int) -> None:
        super().__init__()
        self.keys: Tensor | None = None
        self.values: Tensor | None = None
        self._capacity = capacity
        self._length = 0

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        """Write the new tokens behind the others; returns all so far, [R, heads, tokens, width]."""
        if self.keys is None:
            self.dtype, self.device = key_states.dtype, key_states.device
            self.keys, self.values = self._room(key_states), self._room(value_states)
            self.is_initialized = True
        assert self.values is not None
        start, self._length = self._length, self._length + key_states.shape[-2]
        self.keys[:, :, start : self._length] = key_states
        self.values[:, :, start : self._length] = value_states
        return self.keys[:, :, : self._length], self.values[:, :, : self._length]

    def get_seq_length(self) -> int:
        return self._length

    def _room(self, states: Tensor) -> Tensor:
        rows, heads, _, width = states.shape
        return torch.empty(
            rows, heads, self._capacity, width, dtype=states.dtype, device=states.device
        )
