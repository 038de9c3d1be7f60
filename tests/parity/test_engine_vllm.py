"""vLLM in its process against the transformers model whose weights it was given."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from scipy.stats import chi2_contingency

from hacpo.engines.base import Sample
from hacpo.engines.hf import HFEngine
from hacpo.engines.vllm import VLLMEngine
from hacpo.errors import ConfigError
from hacpo.models.load import load_policy
from hacpo.models.policy import Policy
from hacpo.models.tokens import load_tokens
from hacpo.settings import AgentConfig
from hacpo.types import View
from tests.tiny import tiny_model, tiny_tokenizer
from tests.vllm_engines import engine_of, needs_vllm

pytestmark = [pytest.mark.vllm, needs_vllm]

LONG = [5, 6, 4, 3, 5, 6, 2] * 6
"""More than one block of vLLM's cache."""
PROMPTS = [[5, 6, 4], [6, 3, 5, 6, 4], [4], LONG]


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Policy:
    folder: Path = tmp_path_factory.mktemp("model")
    tiny_model(folder, tiny_tokenizer(["#", "+", "=", "0", "1"]), width=64, seed=3)
    # what must not leak into sampling
    hostile = {"temperature": 0.1, "top_k": 1, "top_p": 0.5, "do_sample": True, "eos_token_id": 6}
    (folder / "generation_config.json").write_text(json.dumps(hostile))
    config = AgentConfig(model=str(folder))
    tokens = load_tokens("a", config, folder)
    assert tokens.end_ids == (1, 6)
    return load_policy("a", config, tokens, str(folder), "cpu", 1.0)


@pytest.fixture(scope="module")
def running(policy: Policy) -> Iterator[VLLMEngine]:
    engine = engine_of(policy)
    yield engine
    engine.close()


@pytest.fixture
def engine(running: VLLMEngine, policy: Policy) -> VLLMEngine:
    """With the policy's weights, whatever an earlier test has loaded."""
    running.load_weights(dict(policy.model.named_parameters()))
    return running


def hf_of(policy: Policy) -> HFEngine:
    tokens = policy.tokens
    return HFEngine(
        policy.model,
        end_ids=tokens.end_ids,
        pad_id=tokens.pad_id,
        decode=tokens.decode,
        batch_rows=512,
    )


def ids_of(groups: list[list[Sample]]) -> list[list[list[int]]]:
    return [[sample.token_ids for sample in group] for group in groups]


def largest_gap(policy: Policy, groups: list[list[Sample]], temperature: float) -> float:
    """Between the sampler's log-probabilities and the trainer's, over all tokens."""
    scorer = Policy(policy.model, policy.tokens, temperature)
    gap = 0.0
    for prompt, group in zip(PROMPTS, groups, strict=True):
        views = [
            View(
                rollout_id=f"{i}",
                problem_id="p",
                source="a",
                prompt_ids=prompt,
                response_ids=sample.token_ids,
            )
            for i, sample in enumerate(group)
        ]
        with torch.no_grad():
            scored = scorer.score(views).logprobs_BT
        for sample, row in zip(group, scored, strict=True):
            ours = torch.tensor(sample.logprobs)
            gap = max(gap, float((ours - row[: len(ours)]).abs().max()))
    return gap


def test_greedy_equals_the_hf_engine(engine: VLLMEngine, policy: Policy) -> None:
    ours = engine.generate(PROMPTS, 2, temperature=0, max_tokens=8, seed=0)
    theirs = hf_of(policy).generate(PROMPTS, 2, temperature=0, max_tokens=8, seed=0)
    assert ids_of(ours) == ids_of(theirs)
    assert [[s.text for s in group] for group in ours] == [[s.text for s in g] for g in theirs]
    assert largest_gap(policy, ours, 1.0) < 1e-4  # greedy reports temperature 1


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_sampler_logprobs_are_the_trainers_at_the_sampling_temperature(
    engine: VLLMEngine, policy: Policy, temperature: float
) -> None:
    groups = engine.generate(PROMPTS, 16, temperature=temperature, max_tokens=8, seed=1)
    assert largest_gap(policy, groups, temperature) < 1e-4


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_tokens_are_distributed_as_the_hf_engines(
    engine: VLLMEngine, policy: Policy, temperature: float
) -> None:
    ours = first_two(engine, temperature, seed=2)
    assert pvalue(ours, first_two(hf_of(policy), temperature, seed=3)) > 1e-3
    # The same test sees a distribution that is a little sharper.
    assert pvalue(ours, first_two(hf_of(policy), temperature * 0.85, seed=3)) < 1e-3


def first_two(engine: VLLMEngine | HFEngine, temperature: float, seed: int) -> Counter[str]:
    (group,) = engine.generate([PROMPTS[0]], 4000, temperature=temperature, max_tokens=2, seed=seed)
    return Counter(str(sample.token_ids) for sample in group)


def pvalue(one: Counter[str], other: Counter[str]) -> float:
    """Chi-square of two samples; what is rare in both together is one class."""
    common = [key for key in one | other if one[key] + other[key] >= 20]
    table = [[counts[key] for key in common] for counts in (one, other)]
    for row, counts in zip(table, (one, other), strict=True):
        row.append(counts.total() - sum(row) + 1)
    return float(chi2_contingency(table).pvalue)


def test_a_response_ends_at_its_first_end_token_of_several(
    engine: VLLMEngine, policy: Policy
) -> None:
    groups = engine.generate(PROMPTS, 100, temperature=1.0, max_tokens=3, seed=5)
    samples = [sample for group in groups for sample in group]
    last = {s.token_ids[-1] for s in samples if s.finish_reason == "stop"}
    assert last == set(policy.tokens.end_ids)
    for sample in samples:
        ends = [t for t, token in enumerate(sample.token_ids) if token in policy.tokens.end_ids]
        if sample.finish_reason == "stop":
            assert ends == [len(sample.token_ids) - 1]
            assert sample.text == policy.tokens.decode(sample.token_ids)
        else:
            assert ends == []
            assert len(sample.token_ids) == 3
        assert len(sample.logprobs) == len(sample.token_ids)


def test_equal_seeds_give_equal_samples_and_others_do_not(engine: VLLMEngine) -> None:
    first = engine.generate(PROMPTS, 8, temperature=1.0, max_tokens=6, seed=3)
    assert first == engine.generate(PROMPTS, 8, temperature=1.0, max_tokens=6, seed=3)
    assert ids_of(first) != ids_of(
        engine.generate(PROMPTS, 8, temperature=1.0, max_tokens=6, seed=4)
    )
    assert len({str(s.token_ids) for s in first[0]}) > 1


def test_equal_prompts_are_sampled_independently(engine: VLLMEngine) -> None:
    one, other = engine.generate([PROMPTS[0]] * 2, 16, temperature=1.0, max_tokens=6, seed=3)
    assert [s.token_ids for s in one] != [s.token_ids for s in other]


def test_a_prompt_too_long_for_the_engine_is_refused(engine: VLLMEngine) -> None:
    with pytest.raises(ConfigError, match="may take 65 tokens, its engine was made for 64"):
        engine.generate([[4] * 60], 1, temperature=1.0, max_tokens=5, seed=0)
