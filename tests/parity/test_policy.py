"""The policy's log-probabilities against a plain forward pass of each row alone."""

from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from hacpo.errors import DataError
from hacpo.models.policy import Policy
from hacpo.models.probe import check_reading
from hacpo.models.tokens import AgentTokens
from hacpo.types import View

TEMPERATURE = 0.7
SMALL = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "head_dim": 8,
}
SLIDING = {"sliding_window": 5, "layer_types": ["sliding_attention", "full_attention"] * 2}
ARCHITECTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {"tie_word_embeddings": True}),
    "qwen2": ("Qwen2", {}),
    "qwen3": ("Qwen3", {}),
    "gemma3": ("Gemma3Text", {**SLIDING, "num_hidden_layers": 4}),
    "gemma2": ("Gemma2", {**SLIDING, "num_hidden_layers": 4, "final_logit_softcapping": 2.0}),
    "mistral": ("Mistral", {"sliding_window": 4}),
    "cohere": ("Cohere", {"logit_scale": 0.3}),
    "granite": ("Granite", {"logits_scaling": 3.0}),
    "phi": ("Phi", {}),
    "gpt2": ("GPT2", {}),
}
GPT2 = {"vocab_size": 97, "n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 64}


def make_policy(architecture: str, dtype: torch.dtype = torch.float32) -> Policy:
    name, own = ARCHITECTURES[architecture]
    settings = GPT2 if name == "GPT2" else SMALL | own
    config = getattr(transformers, f"{name}Config")(**settings, pad_token_id=0, eos_token_id=1)
    config._attn_implementation = "sdpa"
    torch.manual_seed(3)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)  # biases too
    tokens = AgentTokens("a", None, "{problem}", (1,), 0, frozenset({0, 1}))
    return Policy(model, tokens, TEMPERATURE, dtype)


def view(prompt: list[int], response: list[int]) -> View:
    return View(
        rollout_id=f"{prompt}{response}",
        problem_id="p",
        source="a",
        prompt_ids=prompt,
        response_ids=response,
    )


PROMPT = [5, 60, 4, 33, 20, 7, 9]
VIEWS = [
    view(PROMPT, [2, 50, 81, 3, 96, 4]),
    view([61, 3], [2]),
    view(PROMPT, [70, 6, 5, 3, 1]),
    view([4], [2, 6, 55, 3, 1, 7, 8, 90, 12]),
    view(PROMPT, [8]),
]


def plain(policy: Policy, row: View) -> tuple[Tensor, Tensor]:
    """Log-probabilities and entropies, one a response token."""
    ids = torch.tensor([row.prompt_ids + row.response_ids])
    logits = policy.model(input_ids=ids, use_cache=False).logits[0].float() / TEMPERATURE
    before = torch.log_softmax(logits, -1)[len(row.prompt_ids) - 1 : -1]
    picked = before.gather(1, torch.tensor(row.response_ids).unsqueeze(1)).squeeze(1)
    return picked, -(before.exp() * before).sum(1)


@pytest.mark.parametrize("share", [True, False], ids=["packs", "rows"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_logprobs_and_entropies_are_those_of_the_plain_forward(
    architecture: str, share: bool
) -> None:
    policy = make_policy(architecture)
    policy.shares_prompts = share
    with torch.no_grad():
        logprobs_BT, mask_BT, entropy_BT = policy.score(VIEWS, with_entropy=True)
        assert mask_BT.sum(1).tolist() == [len(row.response_ids) for row in VIEWS]
        for row, logprobs, mask, entropy in zip(
            VIEWS, logprobs_BT, mask_BT, entropy_BT, strict=True
        ):
            expected, expected_entropy = plain(policy, row)
            torch.testing.assert_close(logprobs[mask], expected, atol=2e-5, rtol=0)
            torch.testing.assert_close(entropy[mask], expected_entropy, atol=2e-5, rtol=0)
            assert (logprobs[~mask] == 0).all()
            assert (entropy[~mask] == 0).all()


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_gradient_is_that_of_the_plain_forward(
    architecture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hacpo.models.head.SLICE_ELEMENTS", 1)  # slices of 256, all but one uneven
    policy = make_policy(architecture)
    weights = list(policy.weights.trained.values())
    advantages = torch.tensor([1.0, -0.5, 2.0, 0.3, -1.0])
    ours = torch.autograd.grad((policy.score(VIEWS).logprobs_BT.sum(1) * advantages).sum(), weights)
    rows = torch.stack([plain(policy, row)[0].sum() for row in VIEWS])
    theirs = torch.autograd.grad((rows * advantages).sum(), weights)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("architecture", ["llama", "gemma3"])  # gemma3: tied to the embedding
def test_the_gradient_of_a_large_output_layer_is_added_where_it_belongs(
    architecture: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain_policy = make_policy(architecture, dtype)
    (plain_policy.score(VIEWS).logprobs_BT.sum() * 2).backward()
    monkeypatch.setattr("hacpo.models.weights.LARGE_ELEMENTS", 1)
    monkeypatch.setattr("hacpo.models.head.SLICE_ELEMENTS", 1)
    policy = make_policy(architecture, dtype)
    sink = policy._head().sink
    assert sink is not None
    for _ in range(2):  # the second adds to the first
        policy.score(VIEWS).logprobs_BT.sum().backward()
    for name, weight in policy.weights.trained.items():
        expected = plain_policy.weights.trained[name].grad
        if dtype == torch.float32:
            torch.testing.assert_close(weight.grad, expected, atol=1e-5, rtol=1e-5)
        else:
            cosine = torch.cosine_similarity(weight.grad.flatten(), expected.flatten(), 0)
            assert cosine > 0.999, name


@pytest.mark.parametrize("architecture", ["llama", "gemma3", "qwen2"])
def test_bfloat16_is_near_float32_and_its_gradients_are_float32(architecture: str) -> None:
    exact, rounded = make_policy(architecture), make_policy(architecture, torch.bfloat16)
    losses = [policy.score(VIEWS).logprobs_BT for policy in (exact, rounded)]
    assert float((losses[0] - losses[1]).detach().abs().max()) < 0.15
    for logprobs in losses:
        logprobs.sum().backward()
    for name, weight in rounded.weights.trained.items():
        assert weight.dtype == torch.float32
        assert weight.grad is not None
        assert weight.grad.dtype == torch.float32
        cosine = torch.cosine_similarity(
            weight.grad.flatten(), exact.weights.trained[name].grad.flatten(), 0
        )
        assert cosine > 0.98, name
    assert all(parameter.grad is None for parameter in rounded.model.parameters())


def test_a_small_update_moves_float32_weights_and_shows_in_the_model_when_it_adds_up() -> None:
    policy = make_policy("llama", torch.bfloat16)
    name, weight = next(iter(policy.weights.trained.items()))
    before, shown = weight.detach().clone(), dict(policy.model.named_parameters())[name]
    computing = shown.detach().clone()
    for _ in range(4000):
        weight.data -= 1e-6 * weight.data.sign()
    policy.weights.publish()
    assert float((weight.detach() - before).abs().mean()) == pytest.approx(4e-3, rel=0.05)
    assert not torch.equal(shown, computing)
    torch.testing.assert_close(shown.float(), weight, atol=0, rtol=2**-8)


def test_a_model_that_is_read_wrong_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = make_policy("cohere")
    check_reading("a", policy)
    assert policy.shares_prompts
    monkeypatch.setattr(policy.model.config, "logit_scale", None)  # as if it were not known here
    with pytest.raises(DataError, match="log-probabilities of CohereForCausalLM come out wrong"):
        check_reading("a", policy)


def test_a_model_that_cannot_share_prompts_is_computed_row_by_row(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    policy = make_policy("mistral")
    mask = policy._mask  # shared prompts with a mask that is wrong
    monkeypatch.setattr(policy, "_mask", lambda batch: ~mask(batch) if batch.is_shared else None)
    check_reading("a", policy)
    assert not policy.shares_prompts
    assert "its prompts are computed once for each row" in caplog.text
