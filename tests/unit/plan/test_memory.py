"""Sizes against numbers counted by hand, and against what the real models keep."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from hacpo.models.footprint import Outline
from hacpo.models.load import load_policy
from hacpo.models.tokens import load_tokens
from hacpo.plan.memory import Sizes, needed_offloaded
from hacpo.plan.workload import (
    Sampling,
    count_evaluations,
    largest_micro_batch,
    longest_groups,
)
from hacpo.presets import load_run
from hacpo.settings import AgentConfig, LoraSettings
from hacpo.types import View
from tests.tiny import tiny_pair

# Llama: V 11, D 16, MLP 32, 2 layers, 4 heads of 4, 2 of keys and values, tied.
LLAMA_LAYER = 16 * 16 + 2 * 16 * 8 + 16 * 16 + 3 * 16 * 32 + 2 * 16
LLAMA = 11 * 16 + 2 * LLAMA_LAYER + 16
# GPT-2: V 11, D 16, 8 positions, 2 layers, tied.
GPT2_LAYER = (16 * 48 + 48) + (16 * 16 + 16) + (16 * 64 + 64) + (64 * 16 + 16) + 2 * 2 * 16
GPT2 = 11 * 16 + 8 * 16 + 2 * GPT2_LAYER + 2 * 16
ROPE = {"a": 2 * 4 * 4, "b": 2 * 6 * 4}
"""Bytes of the pair's buffers: two tensors of half a head's width, float32."""


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("llama")
    config = LlamaConfig(
        vocab_size=11,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=True,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("gpt2")
    config = GPT2Config(vocab_size=11, n_positions=8, n_embd=16, n_layer=2, n_head=2)
    GPT2LMHeadModel(config).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return tiny_pair(tmp_path_factory.mktemp("pair"))


def outline(folder: str, *, recompute: bool = False, **settings: Any) -> Outline:
    return Outline("x", AgentConfig(model=folder, **settings), folder, recompute=recompute)


def test_sizes_of_a_llama(llama: str) -> None:
    sizes = outline(llama).footprint
    assert sizes.parameters == sizes.trained == LLAMA == 4864
    assert sizes.largest == 16 * 32
    assert sizes.cache_bytes == 2 * 2 * 2 * 4 * 4  # layers, keys and values, heads, width, bytes
    assert sizes.vocabulary == 11


def test_sizes_of_a_gpt2(gpt2: str) -> None:
    sizes = outline(gpt2, dtype="bfloat16").footprint
    assert sizes.parameters == sizes.trained == GPT2
    assert sizes.cache_bytes == 2 * 2 * 16 * 2


def test_sizes_of_adapters(llama: str) -> None:
    settings = LoraSettings(rank=3, targets=["q_proj", "v_proj"])
    sizes = outline(llama, lora=settings).footprint
    assert sizes.trained == 2 * (3 * (16 + 16) + 3 * (16 + 8))
    assert sizes.parameters == LLAMA + sizes.trained


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_activations_are_those_of_the_real_model(pair: dict[str, Any], dtype: str) -> None:
    folder = pair["agents"]["b"]["model"]
    agent = AgentConfig.model_validate({"model": folder, "dtype": dtype})
    tokens = load_tokens("b", agent, folder)
    policy = load_policy("b", agent, tokens, folder, "cpu", 1.0)
    views = [
        View(
            rollout_id=f"{p}{i}", problem_id="", source="", prompt_ids=[p, 2], response_ids=[3] * 5
        )
        for p in range(2)
        for i in range(4)
    ]
    weights = {p.untyped_storage().data_ptr() for p in policy.model.parameters()}
    kept: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.untyped_storage().data_ptr() not in weights:
            kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        scores = policy.score(views)
    real = sum(tensor.untyped_storage().nbytes() for tensor in kept.values())
    predicted = outline(folder, dtype=dtype).activation_bytes(2, [5] * 2)
    assert scores.logprobs_BT.requires_grad
    # width 24: packs of at most 12 tokens, which is two responses of 4 that are read
    assert policy.pack_tokens == 12
    assert 4 * (2 + 2 * 4) * predicted == pytest.approx(real, rel=0.05)


def test_recomputing_keeps_less(llama: str) -> None:
    pack = (4, [8] * 4)
    kept = outline(llama).activation_bytes(*pack)
    assert outline(llama, recompute=True).activation_bytes(*pack) < 0.7 * kept


def test_weights_optimizer_and_gradients_by_dtype(pair: dict[str, Any]) -> None:
    config = load_run(pair, ["agents.b.dtype=bfloat16", "tracking.kl_every=1"])
    found = sizes_of(config).agents(config)
    a, b = found["a"], found["b"]
    assert a.weights - ROPE["a"] == 4 * a.parameters
    assert b.weights - ROPE["b"] == (4 + 2) * b.parameters
    assert (a.optimizer, a.initial) == (8 * a.parameters, 4 * a.parameters)
    assert b.initial == 2 * b.parameters
    assert 4 * b.parameters < b.gradients < 6 * b.parameters
    config = load_run(pair, ["agents.b.lora.rank=2", "agents.b.dtype=bfloat16"])
    b = sizes_of(config).agents(config)["b"]
    assert b.weights - ROPE["b"] == 2 * b.parameters + 4 * b.trained
    assert b.optimizer == 8 * b.trained


def test_sampling_in_bfloat16_on_a_cpu_holds_the_weights_twice(pair: dict[str, Any]) -> None:
    config = load_run(pair, ["agents.b.dtype=bfloat16"])
    sizes = sizes_of(config)
    on_cpu = sizes.agents(config)
    sizes.on_gpu = True
    on_gpu = sizes.agents(config)
    assert on_cpu["b"].cache - on_gpu["b"].cache == 2 * on_cpu["b"].parameters
    assert on_cpu["a"].cache == on_gpu["a"].cache


def test_what_does_not_train_needs_no_more_than_weights_and_cache(pair: dict[str, Any]) -> None:
    agents = sizes_of(load_run(pair)).agents(load_run(pair))
    largest = max(agent.weights + agent.cache for agent in agents.values())
    assert needed_offloaded(agents, 7, trains=False) == 7 + largest
    assert needed_offloaded(agents, 7) > 7 + largest


def test_activations_are_linear_in_micro_tokens(pair: dict[str, Any]) -> None:
    sizes = sizes_of(load_run(pair))

    def activations(micro_tokens: int) -> tuple[int, int]:
        config = load_run(
            pair, [f"update.micro_tokens={micro_tokens}", "update.rows_per_update=128"]
        )
        agent = sizes.agents(config)["a"]
        return agent.micro_tokens, agent.activations

    # So narrow a model shares no prompt; of 6 response tokens 5 are read.
    pack = 9 + 5
    one, two, four = activations(pack), activations(2 * pack + 1), activations(4 * pack)
    assert (one[0], two[0], four[0]) == (pack, 2 * pack, 4 * pack)
    assert four[1] - two[1] == pytest.approx(2 * (two[1] - one[1]), abs=8)
    assert activations(1 << 20)[0] == 32 * pack  # there are no more in a step


def test_a_budget_smaller_than_a_row_is_one_row(pair: dict[str, Any]) -> None:
    config = load_run(pair, ["update.micro_tokens=1"])
    micro = largest_micro_batch(config, longest_groups(config, 9), 512)
    assert (micro.tokens, micro.pack) == (9 + 5, (9, [6]))
    assert micro.passes == 16  # 2 problems an update, 8 rows each


def test_rows_that_are_sampled_at_a_time() -> None:
    call = Sampling(problems=100, samples=8, max_tokens=1)
    assert (call.rows(256), call.batches(256)) == (256, 4)
    assert (call.rows(4), call.batches(4)) == (8, 100)  # one problem at least
    assert (call.rows(4096), call.batches(4096)) == (800, 1)


def test_evaluations_of_a_run(pair: dict[str, Any]) -> None:
    assert count_evaluations(load_run(pair, ["steps=10"])) == 2
    assert count_evaluations(load_run(pair, ["steps=10", "evaluate.every=3"])) == 5
    assert count_evaluations(load_run(pair, ["steps=10", "evaluate.every=5"])) == 3
    none = ["evaluate.samples=0", "evaluate.greedy=false"]
    assert count_evaluations(load_run(pair, none)) == 0
    assert count_evaluations(load_run(pair, ["method=initial"], "a")) == 1


def sizes_of(config: Any) -> Sizes:
    folders = {name: agent.model for name, agent in config.agents.items()}
    assert all(Path(folder).is_dir() for folder in folders.values())
    return Sizes(folders, dict.fromkeys(folders, 9), held_out=8)
