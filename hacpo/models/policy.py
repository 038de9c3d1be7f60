"""One agent's weights: log-probabilities of responses, and saving as an ordinary model folder.

Axes: B rows, T response tokens (padded on the right), K packs, L tokens of a pack, N tokens.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hacpo.models.adapters import merged
from hacpo.models.head import Head, token_logprobs
from hacpo.models.packing import Batch, attention_mask, make_batch
from hacpo.models.saving import save_model
from hacpo.models.tokens import AgentTokens
from hacpo.models.weights import Weights
from hacpo.types import View


class Scores(NamedTuple):
    """What the trainer's weights say about some rows."""

    logprobs_BT: Tensor
    """Float32, at the sampling temperature; 0 where `mask_BT` is False."""
    mask_BT: Tensor
    """True at response tokens."""
    entropy_BT: Tensor
    """Of the next-token distribution, detached, nats; 0 where `mask_BT` is False or not asked."""


class Policy:
    """A Hugging Face causal language model and the way this project reads it.

    Args:
        model: float32, on its device; computes in `dtype` afterwards.
        tokens: the agent's.
        temperature: of sampling; log-probabilities are of the distribution that was sampled from.
        dtype: of computing.
        shares_prompts: whether rows of one prompt are computed in one pack (`hacpo.models.probe`).
    """

    def __init__(
        self,
        model: nn.Module,
        tokens: AgentTokens,
        temperature: float,
        dtype: torch.dtype = torch.float32,
        *,
        shares_prompts: bool = True,
    ) -> None:
        self.model: Any = model
        config: Any = model.config
        self._shape: Any = config.get_text_config()
        self.tokens = tokens
        self.temperature = temperature
        self.weights = Weights(model, dtype)
        self._recomputes = False
        self.shares_prompts = shares_prompts

    @property
    def pack_tokens(self) -> int:
        """Length of a pack at which attention costs about a tenth of what the other layers do."""
        return self._shape.hidden_size // 2 if self.shares_prompts else 0

    @property
    def max_tokens(self) -> int | None:
        """Of a prompt and its response together; None if the model names no limit."""
        return getattr(self._shape, "max_position_embeddings", None)

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device  # type: ignore[no-any-return]

    def score(self, views: list[View], *, with_entropy: bool = False) -> Scores:
        """Log-probabilities of the responses, given their prompts; rows keep their order.

        A prompt that several rows share is computed once, only hidden states that predict a
        response token reach the output layer, and no logits of a whole vocabulary are kept.
        """
        batch = make_batch(views, self.tokens.pad_id, self.device, self.pack_tokens)
        # transformers recomputes in training mode only, where its caches are off.
        self.model.train(self._recomputes and torch.is_grad_enabled())
        try:
            hidden_KLD = self.hidden_states(batch)
        finally:
            self.model.eval()
        hidden_ND = hidden_KLD.flatten(0, 1)[batch.predictor_N]
        logprobs_N, entropy_N = token_logprobs(
            hidden_ND, self._head(), batch.response_N, with_entropy=with_entropy
        )
        width = int(batch.lengths_B.max())
        mask_BT = torch.arange(width, device=self.device) < batch.lengths_B.unsqueeze(1)
        zeros_BT = logprobs_N.new_zeros(mask_BT.shape)
        return Scores(
            zeros_BT.masked_scatter(mask_BT, logprobs_N),
            mask_BT,
            zeros_BT.masked_scatter(mask_BT, entropy_N),
        )

    def hidden_states(self, batch: Batch) -> Tensor:
        """[K, L, D] of the last layer."""
        hidden_KLD: Tensor = self._body()(
            input_ids=batch.input_ids_KL,
            position_ids=batch.position_ids_KL,
            attention_mask=self._mask(batch),
            use_cache=False,
        ).last_hidden_state
        return hidden_KLD

    def engine_weights(self) -> Mapping[str, Tensor]:
        """What a sampling engine loads: tensors in the computing dtype, by the model's names."""
        return merged(self.model)

    def save(self, folder: Path) -> None:
        """Write a folder that `from_pretrained` loads: float32 safetensors, config, tokenizer.

        Of a model with adapters these alone, beside the name of the model that they belong to.
        """
        with self.weights.in_full_precision():
            save_model(self.model, self.tokens.tokenizer, folder)

    def recompute_activations(self) -> None:
        """Gradient checkpointing: backward computes each layer's activations again."""
        for module in self.model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
            if isinstance(getattr(module, "attention_dropout", None), float):
                module.attention_dropout = 0.0
        self.model.gradient_checkpointing_enable({"use_reentrant": False})
        self._recomputes = True

    def _body(self) -> Any:
        """The model without its output layer."""
        return self.model.base_model

    def _mask(self, batch: Batch) -> Tensor | dict[str, Tensor] | None:
        """None where causal attention alone is right: padding stands behind what is read."""
        if not batch.is_shared:
            return None
        config = self._shape
        window = getattr(config, "sliding_window", None)
        kinds = set(getattr(config, "layer_types", None) or [])
        if kinds - {"full_attention", "sliding_attention"}:
            raise ValueError(f"attention of kinds {kinds} cannot be told apart by a mask")
        if "sliding_attention" in kinds:
            return {
                "full_attention": attention_mask(batch),
                "sliding_attention": attention_mask(batch, window),
            }
        sliding = window is not None and not kinds and getattr(config, "use_sliding_window", True)
        return attention_mask(batch, window if sliding else None)

    def _head(self) -> Head:
        layer, config = self.model.get_output_embeddings(), self._shape
        scale = getattr(config, "logit_scale", None) or 1.0  # Cohere
        scale /= getattr(config, "logits_scaling", None) or 1.0  # Granite
        return Head(
            weight_VD=layer.weight,
            bias_V=layer.bias,
            scale=scale / self.temperature,
            softcap=getattr(config, "final_logit_softcapping", None),
            sink=self.weights.sink(layer.weight),
        )
