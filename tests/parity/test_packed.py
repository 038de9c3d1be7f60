"""Packed linear layers against plain ones, alone and within a model that samples."""

import pytest
import torch

from hacpo.engines.hf import HFEngine
from hacpo.engines.packed import can_pack, packed_linears
from tests.parity.test_policy import make_policy

pytestmark = pytest.mark.skipif(not can_pack(), reason="no bfloat16 arithmetic on this CPU")


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(7, 96), (3, 5, 96)])
def test_a_layer_says_the_same(shape: tuple[int, ...], bias: bool) -> None:
    torch.manual_seed(0)
    layer = torch.nn.Linear(96, 40, bias=bias).bfloat16()
    x = torch.randn(shape).bfloat16()
    with torch.inference_mode():
        plain = layer(x)
        with packed_linears(layer, 7):
            packed = layer(x)
            assert "forward" in vars(layer)
    torch.testing.assert_close(packed, plain, atol=2e-2, rtol=2e-2)
    assert "forward" not in vars(layer)


class Siblings(torch.nn.Module):
    """Layers that are computed as one where they are given one input."""

    def __init__(self, *, biases: tuple[bool, bool, bool]) -> None:
        super().__init__()
        self.q_proj = torch.nn.Linear(64, 48, bias=biases[0])
        self.k_proj = torch.nn.Linear(64, 16, bias=biases[1])
        self.v_proj = torch.nn.Linear(64, 16, bias=biases[2])

    def forward(self, *x: torch.Tensor) -> list[torch.Tensor]:
        layers = (self.q_proj, self.k_proj, self.v_proj)
        return [layer(own) for layer, own in zip(layers, x, strict=True)]


@pytest.mark.parametrize("biases", [(True,) * 3, (False,) * 3, (True, False, True)])
def test_layers_with_one_input_say_the_same(biases: tuple[bool, bool, bool]) -> None:
    torch.manual_seed(0)
    model = Siblings(biases=biases).bfloat16()
    x, y = torch.randn(2, 5, 64).bfloat16()
    with torch.inference_mode():
        for inputs in ((x, x, x), (x, y, x), (x, x, y), (y, y, y)):
            plain = model(*inputs)
            with packed_linears(model, 5):
                for _ in range(2):
                    for packed, expected in zip(model(*inputs), plain, strict=True):
                        torch.testing.assert_close(packed, expected, atol=2e-2, rtol=2e-2)


def test_layers_with_one_input_are_one_product() -> None:
    model = Siblings(biases=(False,) * 3).bfloat16()
    x = torch.randn(5, 64).bfloat16()
    with torch.inference_mode(), packed_linears(model, 5):
        q, k, v = model(x, x, x)
    storage = q.untyped_storage().data_ptr()
    assert [part.untyped_storage().data_ptr() for part in (k, v)] == [storage] * 2


def test_the_next_call_has_the_next_weights() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(32, 32, bias=False).bfloat16())
    x = torch.ones(2, 32).bfloat16()
    with torch.inference_mode():
        for value in (1.0, 2.0):
            model[0].weight.fill_(value)
            with packed_linears(model, 2):
                assert model(x)[0, 0].item() == 32 * value


def test_float32_and_layers_of_other_kinds_are_left_alone() -> None:
    class Other(torch.nn.Linear):
        pass

    model = torch.nn.Sequential(torch.nn.Linear(8, 8), Other(8, 8).bfloat16())
    with packed_linears(model, 4):
        assert not any("forward" in vars(layer) for layer in model)


def test_layers_are_themselves_again_after_an_error() -> None:
    layer = torch.nn.Linear(8, 8).bfloat16()
    with pytest.raises(ZeroDivisionError), packed_linears(layer, 4):
        raise ZeroDivisionError
    assert "forward" not in vars(layer)


@pytest.mark.parametrize("architecture", ["llama", "gemma3", "qwen2"])
def test_a_model_samples_what_it_scores(architecture: str) -> None:
    model = make_policy(architecture).model.bfloat16()
    engine = HFEngine(model, end_ids=(1 << 20,), pad_id=0, decode=lambda ids: "", batch_rows=8)
    prompt = [5, 6, 4, 7]
    seen: list[bool] = []
    model.register_forward_hook(lambda *_: seen.append("forward" in vars(model.lm_head)))
    samples = engine.generate([prompt], 4, temperature=1.0, max_tokens=12, seed=3)[0]
    assert seen == [True] * 12
    for sample in samples:
        ids = torch.tensor([[*prompt, *sample.token_ids]])
        logits = model(ids).logits[0, len(prompt) - 1 : -1].float()
        expected = logits.log_softmax(-1).gather(1, ids[0, len(prompt) :, None])[:, 0]
        torch.testing.assert_close(torch.tensor(sample.logprobs), expected, atol=0.1, rtol=0)


def test_rows_that_end_leave_the_others_as_they_would_be() -> None:
    model = make_policy("llama").model.bfloat16()

    def sample(*ends: int) -> list[list[int]]:
        engine = HFEngine(model, end_ids=ends, pad_id=0, decode=lambda ids: "", batch_rows=32)
        drawn = engine.generate([[5, 6, 4, 7]], 32, temperature=1.0, max_tokens=12, seed=3)[0]
        return [each.token_ids for each in drawn]

    whole = sample(1 << 20)
    ends = {ids[3] for ids in whole[:12]}  # so that these rows leave the batch early
    expected = []
    for ids in whole:
        length = next((t + 1 for t, token in enumerate(ids) if token in ends), len(ids))
        expected.append(ids[:length])
    assert sum(len(ids) <= 4 for ids in expected) >= 12
    assert max(map(len, expected)) > 4
    same = [ours == theirs for ours, theirs in zip(sample(*ends), expected, strict=True)]
    assert sum(same) >= 30  # a smaller batch may round otherwise
