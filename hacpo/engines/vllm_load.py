"""New weights into a running vLLM model, packed copies and tied layers included."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from hacpo.engines.weights import sample_of


def load_into(worker: Any, weights: Mapping[str, Tensor]) -> None:
    """Give every parameter of the model of vLLM's worker a new value.

    Raises:
        ValueError: no new value came for a parameter, or it was not taken over.
    """
    from vllm.config import set_current_vllm_config
    from vllm.model_executor.model_loader.reload import (
        finalize_layerwise_reload,
        initialize_layerwise_reload,
    )

    model = worker.get_model()
    wanted = {name for name, _ in model.named_parameters()}
    with torch.no_grad(), set_current_vllm_config(worker.vllm_config):
        # CPU layers hold packed copies of their weights: a plain `model.load_weights` would change
        # nothing, or fail; vLLM's reload packs again.
        initialize_layerwise_reload(model)
        loaded = model.load_weights(weights.items())
        finalize_layerwise_reload(model, worker.model_config)
        _pack_tied(model)
    missing = wanted - loaded
    if missing:
        raise ValueError(f"no weights came for {sorted(missing)[:3]}")
    _check_held(model, weights)


def _pack_tied(model: torch.nn.Module) -> None:
    """Pack output layers again whose weights are the embedding's.

    vLLM's reload processes a tied weight for one of its layers only (its documented limitation 2);
    on the CPU the other one's packed copy would stay that of the old weights.
    """
    layers: list[Any] = [
        layer for layer in model.modules() if layer._parameters.get("weight") is not None
    ]
    users = Counter(id(layer.weight) for layer in layers)
    for layer in layers:
        if users[id(layer.weight)] > 1:
            layer.quant_method.process_weights_after_loading(layer)


def _check_held(model: torch.nn.Module, weights: Mapping[str, Tensor]) -> None:
    """The values that vLLM's model holds under a sent name are those that were sent."""
    for name, held in model.named_parameters():
        sent = weights.get(name)
        if sent is not None and sent.shape == held.shape:
            expected = sample_of(sent).to(held.dtype)
            if not torch.equal(sample_of(held), expected):
                raise ValueError(f"{name} does not hold the weights that were sent")
