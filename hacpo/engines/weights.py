"""Weights on their way from a trainer to a sampling process on the same machine, never by disk.

On the CPU they travel in a fresh block of memory, whose descriptor is sent: nothing of an earlier
sync can be read again. On a GPU the other process opens the trainer's own tensors.
"""

import mmap
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import reduce_tensor

_ALIGNMENT = 64
_SAMPLES = 1024
_DEVICE_ARGUMENT = 6  # of torch's rebuild_cuda_tensor


@dataclass(frozen=True, slots=True)
class Place:
    """Where one tensor lies in a block."""

    offset: int
    shape: tuple[int, ...]
    dtype: torch.dtype


def pack(weights: Mapping[str, Tensor], dtype: torch.dtype | None) -> tuple[int, dict[str, Place]]:
    """Copy tensors into shared memory.

    Args:
        weights: on the CPU.
        dtype: floating-point numbers travel in it; None leaves them as they are.

    Returns:
        descriptor of the memory (the caller closes it) and what lies where.
    """
    places: dict[str, Place] = {}
    size = 0
    for name, tensor in weights.items():
        sent_as = _sent_as(tensor, dtype)
        places[name] = Place(size, tuple(tensor.shape), sent_as)
        size += -(-tensor.numel() * sent_as.itemsize // _ALIGNMENT) * _ALIGNMENT
    descriptor = os.memfd_create("hacpo-weights")
    try:
        os.ftruncate(descriptor, size)
        for name, view in unpack(descriptor, places).items():
            view.copy_(weights[name].detach())
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, places


def unpack(descriptor: int, places: Mapping[str, Place]) -> dict[str, Tensor]:
    """The tensors of a block, not copied; they keep the memory alive."""
    block = torch.frombuffer(mmap.mmap(descriptor, 0), dtype=torch.uint8)
    return {
        name: block[place.offset :][: _numel(place) * place.dtype.itemsize]
        .view(place.dtype)
        .view(place.shape)
        for name, place in places.items()
    }


def cuda_handles(weights: Mapping[str, Tensor]) -> dict[str, tuple[Any, ...]]:
    """CUDA IPC handles; the tensors must stay until the other process has read them."""
    # No GPU tests this: torch's own reduction, as vLLM's IPC weight transfer uses it. Handles of
    # memory of PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True cannot be opened elsewhere.
    reduce: Any = reduce_tensor
    return {name: reduce(tensor.detach()) for name, tensor in weights.items()}


def open_cuda_handles(handles: Mapping[str, tuple[Any, ...]]) -> dict[str, Tensor]:
    """The other process's tensors, on this process's only visible GPU."""
    opened = {}
    for name, (rebuild, arguments) in handles.items():
        here = [*arguments]
        here[_DEVICE_ARGUMENT] = 0
        opened[name] = rebuild(*here)
    return opened


def fingerprint(weights: Mapping[str, Tensor], dtype: torch.dtype | None) -> dict[str, float]:
    """A sum over some numbers of each tensor, equal in both processes: what arrived was sent."""
    return {name: _fingerprint(tensor, dtype) for name, tensor in weights.items()}


def _fingerprint(tensor: Tensor, dtype: torch.dtype | None) -> float:
    return float(sample_of(tensor).to(_sent_as(tensor, dtype)).double().sum())


def sample_of(tensor: Tensor) -> Tensor:
    """At most about a thousand numbers from all over a tensor, on the CPU."""
    flat = tensor.detach().reshape(-1)
    return flat[:: max(1, flat.numel() // _SAMPLES)].cpu()


def _sent_as(tensor: Tensor, dtype: torch.dtype | None) -> torch.dtype:
    return dtype if dtype is not None and tensor.is_floating_point() else tensor.dtype


def _numel(place: Place) -> int:
    return torch.Size(place.shape).numel()
