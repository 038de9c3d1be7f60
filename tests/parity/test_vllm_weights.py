"""New weights reach vLLM whole, at once, and nothing of the old ones stays."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from hacpo.engines.vllm import VLLMEngine
from hacpo.models.load import load_policy
from hacpo.models.policy import Policy
from hacpo.models.tokens import load_tokens
from hacpo.settings import AgentConfig
from tests.parity.test_engine_vllm import PROMPTS, hf_of, ids_of, largest_gap
from tests.tiny import tiny_tokenizer
from tests.vllm_engines import engine_of, needs_compiler, needs_vllm

pytestmark = [pytest.mark.vllm, needs_vllm]


def make_policy(folder: Path, *, tied: bool) -> Policy:
    """Two layers of random weights, large enough that their outputs differ."""
    tokenizer = tiny_tokenizer(["#", "+", "=", "0", "1"])
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=64,
        tie_word_embeddings=tied,
        attention_bias=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = LlamaForCausalLM(config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    agent = AgentConfig(model=str(folder))
    return load_policy("a", agent, load_tokens("a", agent, folder), str(folder), "cpu", 1.0)


@pytest.fixture(
    scope="module",
    params=[(True, False), (False, False), pytest.param((True, True), marks=needs_compiler)],
    ids=["tied", "untied", "compiled"],
)
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[VLLMEngine, Policy]]:
    tied, compiled = request.param
    policy = make_policy(tmp_path_factory.mktemp("model"), tied=tied)
    engine = engine_of(policy, compile_on_cpu=compiled)
    yield engine, policy
    engine.close()


def shake(policy: Policy, seed: int, only: str = "") -> None:
    """Other weights for every parameter whose name contains `only`."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in policy.model.named_parameters():
            if only in name:
                noise = torch.randn(parameter.shape, generator=generator)
                # a narrow output layer, so that differences of logits are not only rounding
                parameter.copy_(noise * 0.3 + (1.0 if "norm" in name else 0.0))


def sync_and_compare(engine: VLLMEngine, policy: Policy) -> list[list[list[int]]]:
    engine.load_weights(dict(policy.model.named_parameters()))
    sampled = engine.generate(PROMPTS, 8, temperature=1.0, max_tokens=8, seed=1)
    assert largest_gap(policy, sampled, 1.0) < 1e-3
    greedy = ids_of(engine.generate(PROMPTS, 1, temperature=0, max_tokens=8, seed=0))
    hf = hf_of(policy).generate(PROMPTS, 1, temperature=0, max_tokens=8, seed=0)
    assert greedy == ids_of(hf)
    return greedy


def test_every_sync_is_what_the_trainer_has_now(pair: tuple[VLLMEngine, Policy]) -> None:
    engine, policy = pair
    seen = set()
    for seed in range(3):  # the same prompts, one of more than a block: no old cache may answer
        shake(policy, seed)
        seen.add(str(sync_and_compare(engine, policy)))
    assert len(seen) == 3


def test_each_kind_of_parameter_arrives_alone(pair: tuple[VLLMEngine, Policy]) -> None:
    engine, policy = pair
    shake(policy, 5)
    before = engine_gap(engine, policy)
    kinds = ["embed_tokens", "q_proj", "k_proj.bias", "v_proj", "o_proj", "gate", "up_", "down"]
    kinds += ["layernorm", "model.norm"]
    kinds += ["lm_head"] if not policy.model.config.tie_word_embeddings else []
    for seed, kind in enumerate(kinds):
        shake(policy, 10 + seed, only=kind)
        old = engine.generate(PROMPTS, 8, temperature=1.0, max_tokens=8, seed=1)
        assert largest_gap(policy, old, 1.0) > 100 * before, kind  # the change can be seen
        assert engine_gap(engine, policy) < 1e-3, kind


def engine_gap(engine: VLLMEngine, policy: Policy) -> float:
    engine.load_weights(dict(policy.model.named_parameters()))
    groups = engine.generate(PROMPTS, 8, temperature=1.0, max_tokens=8, seed=1)
    return largest_gap(policy, groups, 1.0)
