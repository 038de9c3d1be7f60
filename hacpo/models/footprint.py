"""What an agent's model takes in memory, counted on its real code without its weights.

The model is built from its config out of fake tensors, which have a shape and no data: a forward
pass over them costs a moment and keeps for the backward pass exactly what the real one keeps.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache

from hacpo.errors import DataError
from hacpo.models.adapters import add_adapters
from hacpo.models.packing import make_batch
from hacpo.models.policy import Policy
from hacpo.settings import AgentConfig
from hacpo.types import View

_PACKS = 2
"""Packs of the pass that is counted; one alone would hide what grows with the batch."""
_ALONE = 32
"""Tokens of a row on its own in that pass."""
_CACHED = 4
"""Tokens of the pass whose key-value cache is counted."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """Sizes of one agent's model."""

    parameters: int
    """All of them, adapters included."""
    trained: int
    """Those that the optimizer moves: all, or the adapters alone."""
    buffer_bytes: int
    largest: int
    """Parameters of the largest trained tensor."""
    cache_bytes: int
    """Keys and values of one token in all layers, in the computing dtype."""
    vocabulary: int


class Outline:
    """An agent's model without weights.

    Args:
        agent: its id, for messages.
        config: its section.
        folder: of its origin; only the config is read.
        recompute: gradient checkpointing.
    Raises:
        ConfigError: adapters that cannot be made.
        DataError: a config that transformers cannot build.
    """

    def __init__(self, agent: str, config: AgentConfig, folder: str, *, recompute: bool) -> None:
        self._fake = FakeTensorMode()
        self._recompute = recompute
        trusted = config.trust_remote_code
        try:
            shape = AutoConfig.from_pretrained(folder, trust_remote_code=trusted)
            with torch.device("meta"):
                self._model: Any = AutoModelForCausalLM.from_config(
                    shape,
                    dtype=torch.float32,
                    attn_implementation="sdpa",
                    trust_remote_code=trusted,
                )
        except (OSError, ValueError, RuntimeError) as error:
            reason = " ".join(str(error).split())[:200]
            raise DataError(f"agent {agent!r}: {folder} cannot be planned: {reason}") from error
        self._model.eval()
        if config.lora:
            with torch.device("meta"):
                add_adapters(agent, self._model, config.lora, None)
        with self._fake:
            self._give_data(getattr(torch, config.dtype))
        no_tokens: Any = None  # only its masks are asked
        self._policy = Policy(self._model, no_tokens, 1.0)
        self.footprint = self._measure()
        self.pack_tokens = self._policy.pack_tokens
        self.max_tokens = self._policy.max_tokens

    def activation_bytes(self, prompt: int, responses: list[int]) -> float:
        """Bytes that a forward pass keeps for its backward pass, per token of it.

        Args:
            prompt: tokens of one pack's prompt.
            responses: tokens of each response in the pack; attention masks grow with their sum.
        """
        if len(responses) == 1:
            # No mask, so the length does not matter; over fake tensors transformers makes one.
            prompt, responses = 1, [_ALONE]
        views = [
            View(
                rollout_id=f"{pack}/{index}",
                problem_id="",
                source="",
                prompt_ids=[pack] * prompt,
                response_ids=[0] * length,
            )
            for pack in range(_PACKS)
            for index, length in enumerate(responses)
        ]
        weights = {p.untyped_storage()._cdata: p for p in self._model.parameters()}
        kept: dict[int, Tensor] = {}

        def keep(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()._cdata
            if storage not in weights:
                kept[storage] = tensor  # held, so that no other one takes its number
            return tensor

        with self._fake:
            whole = prompt + sum(responses)  # the pack as it is
            batch = make_batch(views, 0, torch.device("cpu"), whole if len(responses) > 1 else 0)
            hooks = torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor)
            if not batch.is_shared:  # the same without, but given, their values are looked at
                nothing: Any = None
                batch = batch._replace(position_ids_KL=nothing)
            with torch.enable_grad(), hooks:
                hidden_KLD = self._policy.hidden_states(batch)
        tokens = batch.input_ids_KL.numel()
        total: float = sum(tensor.untyped_storage().nbytes() for tensor in kept.values())
        # What the output layer keeps (hacpo.models.head): hidden states and a normalizer each.
        row = hidden_KLD.shape[-1] * hidden_KLD.element_size()
        head = len(batch.predictor_N) * (row + 4)
        if self._recompute:
            # A layer keeps its input; the backward pass has all of one layer at a time.
            layers = int(self._model.config.get_text_config().num_hidden_layers)
            total = total / layers + layers * row * tokens
        return (total + head) / tokens

    def _give_data(self, dtype: torch.dtype) -> None:
        """Fake tensors of a CPU for those of `meta`, where attention would run other code."""
        made: dict[int, nn.Parameter] = {}
        for module in self._model.modules():
            for name, old in module._parameters.items():
                if old is not None:
                    if id(old) not in made:  # tied ones stay so
                        data = torch.empty(old.shape, dtype=dtype)
                        made[id(old)] = nn.Parameter(data, requires_grad=old.requires_grad)
                    module._parameters[name] = made[id(old)]
            for name, buffer in module._buffers.items():
                if buffer is not None:
                    module._buffers[name] = torch.empty(buffer.shape, dtype=buffer.dtype)

    def _measure(self) -> Footprint:
        model = self._model
        parameters = list(model.parameters())
        trained = [p.numel() for p in parameters if p.requires_grad]
        with self._fake, torch.no_grad():
            cache = DynamicCache()
            ids = torch.zeros(1, _CACHED, dtype=torch.long)
            mask = torch.ones(1, 1, _CACHED, _CACHED, dtype=torch.bool).tril()
            model.base_model(
                input_ids=ids, attention_mask=mask, past_key_values=cache, use_cache=True
            )
            cached = sum(
                part.numel() * part.element_size()
                for layer in cache.layers
                for part in (layer.keys, layer.values)
            )
        return Footprint(
            parameters=sum(p.numel() for p in parameters),
            trained=sum(trained),
            buffer_bytes=sum(b.numel() * b.element_size() for b in model.buffers()),
            largest=max(trained),
            cache_bytes=cached // _CACHED,
            vocabulary=int(model.get_input_embeddings().num_embeddings),
        )
