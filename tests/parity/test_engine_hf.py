"""The batched cached sampler against the model's own distribution and an uncached greedy loop."""

from collections import Counter
from pathlib import Path

import pytest
import torch
from scipy.stats import chisquare

from hacpo.engines.hf import HFEngine
from hacpo.models.load import load_policy
from hacpo.models.policy import Policy
from hacpo.models.tokens import load_tokens
from hacpo.settings import AgentConfig
from hacpo.types import View
from tests.tiny import tiny_model, tiny_tokenizer

PROMPTS = [[5, 6, 4], [6, 3, 5, 6, 4], [4]]


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Policy:
    folder: Path = tmp_path_factory.mktemp("model")
    tiny_model(folder, tiny_tokenizer(["#", "+", "=", "0", "1"]), width=16, seed=3)
    config = AgentConfig(model=str(folder))
    return load_policy("a", config, load_tokens("a", config, folder), str(folder), "cpu", 1.0)


def engine_of(policy: Policy, batch_rows: int = 256) -> HFEngine:
    tokens = policy.tokens
    return HFEngine(
        policy.model,
        end_ids=tokens.end_ids,
        pad_id=tokens.pad_id,
        decode=tokens.decode,
        batch_rows=batch_rows,
    )


def test_greedy_equals_argmax_without_a_cache(policy: Policy) -> None:
    groups = engine_of(policy).generate(PROMPTS, 1, temperature=0, max_tokens=8, seed=0)
    for prompt, (sample,) in zip(PROMPTS, groups, strict=True):
        ids = list(prompt)
        for token in sample.token_ids:
            logits = policy.model(input_ids=torch.tensor([ids])).logits[0, -1]
            assert token == int(logits.argmax())
            ids.append(token)
        ended = sample.token_ids[-1] in policy.tokens.end_ids
        assert sample.finish_reason == ("stop" if ended else "length")


def test_sampler_logprobs_are_the_trainers(policy: Policy) -> None:
    groups = engine_of(policy).generate(PROMPTS, 5, temperature=1.0, max_tokens=8, seed=1)
    views = [
        View(
            rollout_id=f"{p}/{g}",
            problem_id="p",
            source="a",
            prompt_ids=prompt,
            response_ids=sample.token_ids,
        )
        for p, (prompt, group) in enumerate(zip(PROMPTS, groups, strict=True))
        for g, sample in enumerate(group)
    ]
    scored = policy.score(views).logprobs_BT
    samples = [sample for group in groups for sample in group]
    for sample, row in zip(samples, scored, strict=True):
        expected = row[: len(sample.token_ids)].detach()
        torch.testing.assert_close(torch.tensor(sample.logprobs), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_first_and_second_tokens_follow_the_models_distribution(
    policy: Policy, temperature: float
) -> None:
    draws = 4000
    (group,) = engine_of(policy).generate(
        [PROMPTS[0]], draws, temperature=temperature, max_tokens=2, seed=2
    )
    firsts = Counter(sample.token_ids[0] for sample in group)
    check(firsts, policy, PROMPTS[0], temperature)
    common = next(t for t, _ in firsts.most_common() if t not in policy.tokens.end_ids)
    seconds = Counter(s.token_ids[1] for s in group if s.token_ids[0] == common)
    check(seconds, policy, [*PROMPTS[0], common], temperature)


def check(counts: Counter[int], policy: Policy, ids: list[int], temperature: float) -> None:
    logits = policy.model(input_ids=torch.tensor([ids])).logits[0, -1].detach().double()
    expected = torch.softmax(logits / temperature, -1) * counts.total()
    common = [i for i in range(len(expected)) if expected[i] >= 5]
    observed = [counts[i] for i in common]
    rest = counts.total() - sum(observed)
    expected_rest = float(counts.total() - expected[common].sum())
    assert chisquare([*observed, rest], [*expected[common].tolist(), expected_rest]).pvalue > 1e-4


def test_equal_seeds_give_equal_samples_and_others_do_not(policy: Policy) -> None:
    engine = engine_of(policy)
    first = engine.generate(PROMPTS, 8, temperature=1.0, max_tokens=6, seed=3)
    assert first == engine.generate(PROMPTS, 8, temperature=1.0, max_tokens=6, seed=3)
    assert first != engine.generate(PROMPTS, 8, temperature=1.0, max_tokens=6, seed=4)


def test_the_batch_size_does_not_change_what_is_sampled(policy: Policy) -> None:
    together = engine_of(policy).generate(PROMPTS, 8, temperature=1.0, max_tokens=6, seed=3)
    apart = engine_of(policy, batch_rows=8).generate(
        PROMPTS, 8, temperature=1.0, max_tokens=6, seed=3
    )
    assert [[s.token_ids for s in g] for g in together] == [[s.token_ids for s in g] for g in apart]


def test_a_response_ends_at_its_first_end_token(policy: Policy) -> None:
    groups = engine_of(policy).generate(PROMPTS, 50, temperature=1.0, max_tokens=6, seed=5)
    samples = [sample for group in groups for sample in group]
    assert {sample.finish_reason for sample in samples} == {"stop", "length"}
    for sample in samples:
        ends = [t for t, token in enumerate(sample.token_ids) if token in policy.tokens.end_ids]
        if sample.finish_reason == "stop":
            assert ends == [len(sample.token_ids) - 1]
        else:
            assert ends == []
            assert len(sample.token_ids) == 6
        assert len(sample.logprobs) == len(sample.token_ids)
        assert "<eos>" not in sample.text


def test_new_weights_are_sampled_from_at_once(policy: Policy) -> None:
    before = engine_of(policy).generate(PROMPTS, 1, temperature=0, max_tokens=4, seed=0)
    kept = {name: p.clone() for name, p in policy.model.named_parameters()}
    engine = engine_of(policy)
    try:
        with torch.no_grad():
            for parameter in policy.model.parameters():
                parameter.mul_(-1.0)
        after = engine.generate(PROMPTS, 1, temperature=0, max_tokens=4, seed=0)
        logits = policy.model(input_ids=torch.tensor([PROMPTS[0]])).logits[0, -1]
        assert after[0][0].token_ids[0] == int(logits.argmax())
    finally:
        with torch.no_grad():
            for name, parameter in policy.model.named_parameters():
                parameter.copy_(kept[name])
    assert before != after
