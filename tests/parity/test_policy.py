"""The policy's log-probabilities against a plain forward pass of each row alone, no padding."""

import pytest
import torch

from hacpo.models.policy import Policy, load_policy, micro_batches
from hacpo.models.tokens import load_tokens
from hacpo.settings import AgentConfig
from hacpo.types import View
from tests.tiny import tiny_model, tiny_tokenizer


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Policy:
    folder = tmp_path_factory.mktemp("model")
    tiny_model(folder, tiny_tokenizer(["#", "+", "=", "0", "1"]), width=16, seed=3)
    config = AgentConfig(model=str(folder))
    tokens = load_tokens("a", config, folder)
    return load_policy("a", config, tokens, str(folder), "cpu", temperature=0.7)


def view(prompt: list[int], response: list[int]) -> View:
    return View(
        rollout_id=f"{prompt}{response}",
        problem_id="p",
        source="a",
        prompt_ids=prompt,
        response_ids=response,
    )


VIEWS = [view([5, 6, 4], [2, 5, 1]), view([6, 3, 5, 6, 4], [2]), view([4], [2, 6, 5, 3, 1])]


def plain_logprobs(policy: Policy, row: View) -> torch.Tensor:
    ids = torch.tensor([row.prompt_ids + row.response_ids])
    logits = policy.model(input_ids=ids).logits[0].float() / 0.7
    logprobs = torch.log_softmax(logits, -1)
    start = len(row.prompt_ids)
    return torch.stack([logprobs[start - 1 + t, token] for t, token in enumerate(row.response_ids)])


def test_padding_does_not_change_a_rows_logprobs(policy: Policy) -> None:
    logprobs_BT, mask_BT, _ = policy.score(VIEWS)
    assert mask_BT.tolist() == [
        [True, True, True, False, False],
        [True, False, False, False, False],
        [True, True, True, True, True],
    ]
    for row, logprobs, mask in zip(VIEWS, logprobs_BT, mask_BT, strict=True):
        torch.testing.assert_close(logprobs[mask], plain_logprobs(policy, row), atol=1e-5, rtol=0)
        assert (logprobs[~mask] == 0).all()


def test_the_gradient_is_that_of_the_plain_forward(policy: Policy) -> None:
    parameters = list(policy.model.parameters())
    batched = torch.autograd.grad(policy.score(VIEWS).logprobs_BT.sum(), parameters)
    alone = torch.autograd.grad(
        torch.cat([plain_logprobs(policy, row) for row in VIEWS]).sum(), parameters
    )
    for one, other in zip(batched, alone, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


def test_entropy_is_that_of_the_next_token_distribution(policy: Policy) -> None:
    row = VIEWS[0]
    ids = torch.tensor([row.prompt_ids + row.response_ids])
    probabilities = torch.softmax(policy.model(input_ids=ids).logits[0].float() / 0.7, -1)
    expected = torch.distributions.Categorical(probs=probabilities[2:5]).entropy()
    torch.testing.assert_close(policy.score([row]).entropy_BT[0], expected, atol=1e-5, rtol=0)


def test_micro_batches_hold_every_row_once_and_at_most_so_many() -> None:
    batches = list(micro_batches(VIEWS * 3, 4))
    assert [len(batch) for batch in batches] == [4, 4, 1]
    ids = [row.rollout_id for batch in batches for row in batch]
    assert sorted(ids) == sorted(row.rollout_id for row in VIEWS * 3)
