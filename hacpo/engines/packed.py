"""Linear layers of a bfloat16 model on a CPU, their weights laid out as the processor reads them.

A product in bfloat16 rearranges its weights before it computes. Over the few rows of a decoding
step that costs nearly as much as the arithmetic, and it is done again for every token. Here it is
done once a call of the engine: a second copy of the weights, which lives only as long.
"""

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import TypeGuard

import torch
from torch import Tensor

_TOGETHER = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
"""Layers of one module that its forward gives the same input: one product instead of several."""


@contextlib.contextmanager
def packed_linears(model: torch.nn.Module, rows: int) -> Iterator[None]:
    """Within, the bfloat16 linear layers of a model on a CPU compute with packed weights.

    Args:
        model: whose weights must not change within.
        rows: of a decoding step; the layout is best for so many, and right for any number.
    """
    layers: list[torch.nn.Linear] = []
    try:
        for group in _groups(model):
            layers += group
            packed = _Packed(group, rows)
            for index, layer in enumerate(group):
                # On the instance, where a module looks before its class: no hook, no other module.
                vars(layer)["forward"] = functools.partial(packed.product, index)
        yield
    finally:
        for layer in layers:
            vars(layer).pop("forward", None)


class _Packed:
    """The weights of layers with one input, and their newest products."""

    def __init__(self, layers: Sequence[torch.nn.Linear], rows: int) -> None:
        weights = [layer.weight.detach() for layer in layers]
        weight = torch.cat(weights) if len(weights) > 1 else weights[0]
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight, rows)
        biases = [layer.bias.detach() for layer in layers if layer.bias is not None]
        self._bias = torch.cat(biases) if biases else None
        self._widths = [layer.out_features for layer in layers]
        self._input: Tensor | None = None
        self._products: tuple[Tensor, ...] = ()

    def product(self, index: int, x: Tensor) -> Tensor:
        """Of layer `index`; those of the others are kept until they are asked for."""
        if x is not self._input:
            out = torch.ops.mkldnn._linear_pointwise(x, self._weight, self._bias, "none", [], "")
            if len(self._widths) == 1:
                return out  # type: ignore[no-any-return]
            self._products = torch.ops.aten.split_with_sizes(out, self._widths, -1)
            self._input = x
        product = self._products[index]
        if index + 1 == len(self._widths):  # all have been asked
            self._input, self._products = None, ()
        return product


def _groups(model: torch.nn.Module) -> Iterator[Sequence[torch.nn.Linear]]:
    """The layers to pack, those that share an input together."""
    taken = set()
    for module in model.modules():
        for names in _TOGETHER:
            group = [layer for name in names if _packs(layer := getattr(module, name, None))]
            if len(group) == len(names) and len({x.bias is None for x in group}) == 1:
                taken |= {id(layer) for layer in group}
                yield group
    for module in model.modules():
        if _packs(module) and id(module) not in taken:
            yield [module]


def can_pack() -> bool:
    """Whether this torch has oneDNN and this processor arithmetic in bfloat16."""
    has_onednn: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return has_onednn and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def _packs(layer: object) -> TypeGuard[torch.nn.Linear]:
    return (
        type(layer) is torch.nn.Linear  # no subclass, which may compute something else
        and layer.weight.device.type == "cpu"
        and layer.weight.dtype == torch.bfloat16
        and "forward" not in vars(layer)
        and can_pack()
    )
