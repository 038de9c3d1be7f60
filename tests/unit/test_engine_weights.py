"""What is packed arrives as it was, rounded where asked, and a difference is seen."""

import os

import pytest
import torch

from hacpo.engines.weights import fingerprint, pack, unpack

WEIGHTS = {
    "odd": torch.arange(7, dtype=torch.float32) / 3,
    "strided": torch.arange(12, dtype=torch.float32).view(3, 4).t(),
    "large": torch.linspace(-1, 1, 5000).view(50, 100),
    "scalar": torch.tensor(2.5),
    "whole": torch.tensor([1, 2, 1 << 40]),
}


@pytest.mark.parametrize("dtype", [None, torch.float32, torch.bfloat16])
def test_tensors_arrive_in_the_asked_precision(dtype: torch.dtype | None) -> None:
    descriptor, places = pack(WEIGHTS, dtype)
    arrived = unpack(descriptor, places)
    os.close(descriptor)  # the memory stays
    for name, sent in WEIGHTS.items():
        expected = sent if dtype is None or name == "whole" else sent.to(dtype)
        torch.testing.assert_close(arrived[name], expected, rtol=0, atol=0)
    assert fingerprint(arrived, dtype) == fingerprint(WEIGHTS, dtype)


def test_a_later_block_is_another_memory() -> None:
    weights = {"w": torch.zeros(3)}
    first, places = pack(weights, None)
    weights["w"] += 1
    second, _ = pack(weights, None)
    assert unpack(first, places)["w"].tolist() == [0, 0, 0]
    assert unpack(second, places)["w"].tolist() == [1, 1, 1]
    for descriptor in (first, second):
        os.close(descriptor)


def test_other_weights_have_another_fingerprint() -> None:
    other = {**WEIGHTS, "large": WEIGHTS["large"] * 1.001}
    assert fingerprint(other, None) != fingerprint(WEIGHTS, None)
