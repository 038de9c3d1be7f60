"""Linear layers of a bfloat16 model on a CPU, their weights laid out as the processor reads them.

A product in bfloat16 rearranges its weights before it computes. Over the few rows of a decoding
step that costs nearly as much as the arithmetic, and it is done again for every token. Here it is
done once a call of the engine: a second copy of the weights, which lives only as long.
"""

import contextlib
import functools
from collections.abc import Iterator

import torch
from torch import Tensor


@contextlib.contextmanager
def packed_linears(model: torch.nn.Module, rows: int) -> Iterator[None]:
    """Within, the bfloat16 linear layers of a model on a CPU compute with packed weights.

    Args:
        model: whose weights must not change within.
        rows: of a decoding step; the layout is best for so many, and right for any number.
    """
    layers = [x for x in model.modules() if isinstance(x, torch.nn.Linear) and _packs(x)]
    try:
        for layer in layers:
            packed = torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach(), rows)
            # On the instance, where a module looks before its class: no hook, no other module.
            vars(layer)["forward"] = functools.partial(_linear, packed, layer.bias)
        yield
    finally:
        for layer in layers:
            vars(layer).pop("forward", None)


def can_pack() -> bool:
    """Whether this torch has oneDNN and this processor arithmetic in bfloat16."""
    has_onednn: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return has_onednn and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def _packs(layer: torch.nn.Linear) -> bool:
    return (
        type(layer) is torch.nn.Linear  # no subclass, which may compute something else
        and layer.weight.device.type == "cpu"
        and layer.weight.dtype == torch.bfloat16
        and "forward" not in vars(layer)
        and can_pack()
    )


def _linear(packed: Tensor, bias: Tensor | None, x: Tensor) -> Tensor:
    product: Tensor = torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")
    return product
