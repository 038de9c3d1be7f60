"""Low-rank adapters (LoRA, arXiv 2106.09685) by peft: they alone are trained, saved and merged."""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from hacpo.errors import ConfigError
from hacpo.extras import require
from hacpo.settings import LoraSettings

FILE = "adapter_model.safetensors"
_MARK = "lora_"


def add_adapters(agent: str, model: Any, settings: LoraSettings, saved: Path | None) -> None:
    """Put adapters into a float32 model and freeze the rest; they change nothing at first.

    Args:
        agent: for messages.
        model: as loaded; keeps its class and names, adapted layers get a `base_layer`.
        settings: rank, alpha, targets.
        saved: a checkpoint's model folder whose adapters to go on from.
    Raises:
        ConfigError: peft is not installed, or no layer is named so.
    """
    require("peft", f"agent {agent!r}: lora")
    import peft

    if settings.targets != "all-linear":
        _check_targets(agent, model, settings.targets)
    config = peft.LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        target_modules=settings.targets,
        lora_dropout=0.0,
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)  # the same adapters in every run and on resume
        try:
            model.add_adapter(config)
        except Exception as error:  # peft raises many kinds for a layer that it cannot adapt
            reason = " ".join(str(error).split())[:200]
            raise ConfigError(
                f"agent {agent!r}: lora.targets {settings.targets!r}: {reason}"
            ) from None
    if saved is not None:
        peft.set_peft_model_state_dict(model, load_file(saved / FILE))


def _check_targets(agent: str, model: Any, targets: list[str] | str) -> None:
    """Refuse names of no layer, and the layers of the vocabulary, which are read in another way."""
    vocabulary = (model.get_input_embeddings(), model.get_output_embeddings())
    for target in targets:
        found = [m for n, m in model.named_modules() if f".{n}".endswith(f".{target}")]
        if not found:
            raise ConfigError(f"agent {agent!r}: lora.targets: no layer is named {target!r}")
        if any(module is layer for module in found for layer in vocabulary):
            raise ConfigError(
                f"agent {agent!r}: lora.targets: {target!r} is a layer of the vocabulary, which "
                "adapters of this project leave alone; name others"
            )


def merged(model: Any) -> dict[str, Tensor]:
    """All weights by the names of the model without adapters, what they add included.

    A model without adapters gives its own parameters, not copies.
    """
    layers = dict(model.named_modules())
    weights: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        if _MARK in name:
            continue
        owner, _, _ = name.partition(".base_layer.")
        weight = parameter.detach()
        if owner != name and name.endswith(".weight"):
            with torch.no_grad():
                weight = weight + layers[owner].get_delta_weight("default").to(weight.dtype)
        weights[name.replace(".base_layer.", ".")] = weight
    return weights
