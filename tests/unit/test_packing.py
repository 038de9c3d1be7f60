"""Packs and micro-batches: every row once, within the budget, in the same order every time."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from hacpo.models.packing import attention_mask, make_batch, make_packs, micro_batches
from hacpo.types import View

CPU = torch.device("cpu")


def view(number: int, prompt: list[int], length: int) -> View:
    return View(
        rollout_id=f"r{number}",
        problem_id="p",
        source="a",
        prompt_ids=prompt,
        response_ids=list(range(100 * number, 100 * number + length)),
    )


@st.composite
def rows(draw: st.DrawFn) -> list[View]:
    prompts = draw(st.lists(st.integers(1, 40), min_size=1, max_size=4))
    sizes = draw(st.lists(st.tuples(st.sampled_from(prompts), st.integers(1, 30)), min_size=1))
    return [view(i, [7] * prompt, length) for i, (prompt, length) in enumerate(sizes)]


@given(rows(), st.integers(1, 200), st.sampled_from([0, 40, 512]))
def test_micro_batches_hold_every_row_once_within_the_budget(
    views: list[View], budget: int, pack: int
) -> None:
    batches = list(micro_batches(views, budget, pack))
    assert sorted(v.rollout_id for batch in batches for v in batch) == sorted(
        v.rollout_id for v in views
    )
    for batch in batches:
        packs = make_packs(batch, budget, pack)
        assert len(packs) == 1 or len(packs) * max(pack.length for pack in packs) <= budget
    assert batches == list(micro_batches(views[::-1], budget, pack))


@given(rows())
def test_each_response_token_is_predicted_by_the_token_before_it(views: list[View]) -> None:
    batch = make_batch(views, 0, CPU, 512)
    ids, positions = batch.input_ids_KL.flatten(), batch.position_ids_KL.flatten()
    at = 0
    for row in views:
        text = row.prompt_ids + row.response_ids
        for t, token in enumerate(row.response_ids):
            predictor = batch.predictor_N[at]
            assert batch.response_N[at] == token
            assert positions[predictor] == len(row.prompt_ids) + t - 1
            assert ids[predictor] == text[len(row.prompt_ids) + t - 1]
            at += 1
    assert at == len(batch.predictor_N)


def test_responses_see_their_prompt_and_themselves_only() -> None:
    batch = make_batch([view(1, [7, 7], 3), view(2, [7, 7], 2)], 0, CPU, 512)
    # prompt 2, then the shorter response's 1 input token and the longer one's 2
    assert batch.segment_KL.tolist() == [[0, 0, 1, 2, 2]]
    assert batch.position_ids_KL.tolist() == [[0, 1, 2, 2, 3]]
    assert attention_mask(batch)[0, 0].int().tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 1, 1, 0, 0],
        [1, 1, 0, 1, 0],
        [1, 1, 0, 1, 1],
    ]
    assert attention_mask(batch, window=2)[0, 0].int().tolist()[-2:] == [
        [0, 1, 0, 1, 0],
        [0, 0, 0, 1, 1],
    ]


def test_a_shared_prompt_is_read_once() -> None:
    views = [view(i, [7] * 50, 11) for i in range(8)]
    assert make_batch(views, 0, CPU, 512).input_ids_KL.shape == (1, 50 + 8 * 10)
    assert make_batch(views, 0, CPU, 0).input_ids_KL.shape == (8, 60)


def test_long_responses_are_not_packed_where_attention_would_cost_more() -> None:
    views = [view(i, [7] * 20, 400) for i in range(3)]
    assert [len(pack.rows) for pack in make_packs(views, 10_000, 512)] == [1, 1, 1]
