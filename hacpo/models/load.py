"""Reading an agent's weights into a policy."""

from pathlib import Path

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM

from hacpo.errors import DataError
from hacpo.models.adapters import add_adapters
from hacpo.models.policy import Policy
from hacpo.models.probe import check_reading
from hacpo.models.saving import no_progress_bars
from hacpo.models.tokens import AgentTokens
from hacpo.settings import AgentConfig


def load_policy(
    agent: str,
    config: AgentConfig,
    tokens: AgentTokens,
    model: str,
    device: str,
    temperature: float,
    checkpoint: Path | None = None,
    *,
    frozen: bool = False,
) -> Policy:
    """Read an agent's weights from a folder; safetensors only, float32 whatever it holds.

    Args:
        agent: its id, for messages.
        config: its section.
        tokens: its tokenizer.
        model: the folder of its origin.
        device: where it computes.
        temperature: of sampling.
        checkpoint: a model folder that `Policy.save` wrote, to go on from.
        frozen: nothing of it will be trained, so nothing needs float32 beside the computing dtype.
    Raises:
        ConfigError: adapters that cannot be made.
        DataError: missing or unreadable weights, or a model that this project cannot read right.
    """
    source = model if config.lora or checkpoint is None else checkpoint
    try:
        with no_progress_bars():
            loaded, report = AutoModelForCausalLM.from_pretrained(
                str(source),
                dtype=torch.float32,
                use_safetensors=True,
                attn_implementation="sdpa",
                trust_remote_code=config.trust_remote_code,
                output_loading_info=True,
            )
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        reason = " ".join(str(error).split())[:200]
        raise DataError(
            f"agent {agent!r}: weights of {model} cannot be loaded: {reason}"
        ) from error
    absent = sorted([*report["missing_keys"], *report["mismatched_keys"]], key=str)
    if absent:  # they would be random numbers, others at each load
        raise DataError(
            f"agent {agent!r}: {len(absent)} weights of {model} are missing or of another shape, "
            f"such as {absent[0]}; copy or save the model again"
        )
    loaded.eval()  # no dropout: a ratio compares the same function at two sets of weights
    if config.lora:
        add_adapters(agent, loaded, config.lora, checkpoint)
    if frozen:
        loaded.requires_grad_(False)
    loaded.to(device)
    shares_prompts = check_reading(agent, Policy(loaded, tokens, temperature))
    dtype = getattr(torch, config.dtype)
    return Policy(loaded, tokens, temperature, dtype, shares_prompts=shares_prompts)
