import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hacpo.algorithm import count_updates, loss_denominator, split_updates

counts = st.integers(1, 200)


@pytest.mark.parametrize(("rows_per_problem", "updates"), [(8, 2), (16, 4), (24, 6)])
def test_the_papers_batches(rows_per_problem: int, updates: int) -> None:
    split = split_updates(128, rows_per_problem, 512)
    assert len(split) == updates == count_updates(128, rows_per_problem, 512)
    # 128 / 2 and 128 / 4 are whole; 128 / 6 is 21 or 22
    assert {len(problems) for problems in split} <= {64, 32, 21, 22}


@pytest.mark.parametrize(
    ("problems", "rows_per_update", "updates"),
    [(3, 2, 2), (5, 2, 3), (7, 2, 4), (5, 4, 1), (6, 4, 2), (1, 100, 1), (9, 100, 1)],
)
def test_a_half_rounds_up_and_there_is_at_least_one_update(
    problems: int, rows_per_update: int, updates: int
) -> None:
    # 1.5 -> 2, 2.5 -> 3 (Python's round gives 2), 3.5 -> 4, 1.25 -> 1, 1.5 -> 2, 0.01 and 0.09 -> 1
    assert count_updates(problems, 1, rows_per_update) == updates


def test_there_are_never_more_updates_than_problems() -> None:
    assert split_updates(3, 100, 10) == [range(0, 1), range(1, 2), range(2, 3)]


@settings(max_examples=100, deadline=None)
@given(counts, counts, counts)
def test_updates_cover_every_problem_once_as_evenly_as_possible(
    problems: int, rows_per_problem: int, rows_per_update: int
) -> None:
    split = split_updates(problems, rows_per_problem, rows_per_update)
    assert [index for update in split for index in update] == list(range(problems))
    sizes = [len(update) for update in split]
    assert max(sizes) - min(sizes) <= 1
    assert min(sizes) >= 1


@settings(max_examples=50, deadline=None)
@given(counts, counts, counts, st.integers(2, 4))
def test_equal_rows_give_equal_updates_whichever_agents_they_came_from(
    problems: int, group: int, rows_per_update: int, agents: int
) -> None:
    joint = split_updates(problems, agents * group, rows_per_update)
    multiplied = split_updates(problems, group * agents, rows_per_update)
    assert joint == multiplied
    assert len(joint) >= len(split_updates(problems, group, rows_per_update))


def test_denominators_are_all_planned_rows_or_one_sources() -> None:
    assert loss_denominator(64, 8, 2) == 1024
    # Eq. 53: sum / 512 = mean over the first source's rows + mean over the second's
    assert loss_denominator(64, 8, 2, "per_source") == 512
    assert loss_denominator(64, 8, 1) == loss_denominator(64, 8, 1, "per_source") == 512


@pytest.mark.parametrize("numbers", [(0, 8, 512), (128, 0, 512), (128, 8, 0)])
def test_counts_below_1_are_refused(numbers: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        split_updates(*numbers)
    with pytest.raises(ValueError, match="at least one of each"):
        loss_denominator(*numbers)
    with pytest.raises(ValueError, match="choose planned or per_source"):
        loss_denominator(1, 1, 1, "rows")  # type: ignore[arg-type]
