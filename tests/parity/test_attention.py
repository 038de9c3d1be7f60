"""The decoding attention against transformers' own, alone and within whole models."""

import pytest
import torch
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from hacpo.engines import attention
from hacpo.engines.attention import decoding_attention, grouped_attention
from hacpo.engines.hf import HFEngine
from tests.parity.test_policy import make_policy

ROWS, LENGTH, ROOM, WIDTH = 5, 11, 16, 8


class Layer(torch.nn.Module):
    """What the functions ask of an attention layer."""

    is_causal = True

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.num_key_value_groups = groups


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["none", "seen", "added"])
@pytest.mark.parametrize(("heads", "shared"), [(6, 2), (4, 4), (4, 1)])
def test_it_computes_what_sdpa_does(heads: int, shared: int, kind: str, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(ROWS, heads, 1, WIDTH, generator=generator).to(dtype)
    room = torch.randn(2, ROWS, shared, ROOM, WIDTH, generator=generator).to(dtype)
    key, value = room[0][:, :, :LENGTH], room[1][:, :, :LENGTH]  # slices, as the cache gives them
    seen = torch.rand(ROWS, 1, 1, LENGTH, generator=generator) > 0.3
    seen[..., -1] = True
    added = torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(torch.float32).min).to(dtype)
    mask = {"none": None, "seen": seen, "added": added}[kind]
    layer = Layer(heads // shared)
    ours, _ = grouped_attention(layer, query, key, value, mask, scaling=0.2)
    theirs, _ = sdpa_attention_forward(layer, query, key, value, mask, scaling=0.2)
    assert ours.shape == theirs.shape == (ROWS, 1, heads, WIDTH)
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(ours, theirs, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("architecture", ["llama", "gemma3", "qwen2"])
def test_a_model_says_the_same_token_by_token(
    architecture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = make_policy(architecture)
    calls = 0
    plain = attention.sdpa_attention_forward

    def counted(*arguments: object, **options: object) -> object:
        nonlocal calls
        calls += 1
        return plain(*arguments, **options)

    monkeypatch.setattr(attention, "sdpa_attention_forward", counted)
    engine = HFEngine(
        policy.model, end_ids=(1 << 20,), pad_id=0, decode=lambda ids: "", batch_rows=8
    )
    prompts = [[5, 6, 4, 7], [6, 3]]
    settings = {"temperature": 1.0, "max_tokens": 12, "seed": 3}
    groups = engine.generate(prompts, 2, **settings)  # type: ignore[arg-type]
    layers = policy.model.config.get_text_config().num_hidden_layers
    assert calls == layers  # the prompts only: the other 11 tokens are ours
    assert policy.model.config.get_text_config()._attn_implementation == "sdpa"
    for prompt, samples in zip(prompts, groups, strict=True):
        for sample in samples:
            ids = torch.tensor([[*prompt, *sample.token_ids]])
            logits = policy.model(ids).logits[0, len(prompt) - 1 : -1].float()
            expected = logits.log_softmax(-1).gather(1, ids[0, len(prompt) :, None])[:, 0]
            torch.testing.assert_close(torch.tensor(sample.logprobs), expected, atol=1e-4, rtol=0)


def test_other_kinds_of_attention_are_left_alone() -> None:
    policy = make_policy("llama")
    policy.model.config._attn_implementation = "eager"
    with decoding_attention(policy.model):
        assert policy.model.config._attn_implementation == "eager"
