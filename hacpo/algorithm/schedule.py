"""How the problems of one step are split over optimizer updates.

`rows_per_update` is the same for every method, so a method with more rows makes more updates.
The split depends on nothing but these numbers: not on ranks, micro-batches or accumulation.
"""

import itertools
from typing import Literal


def count_updates(num_problems: int, rows_per_problem: int, rows_per_update: int) -> int:
    """Updates of one step: rows / rows_per_update, rounded, at least 1, at most one per problem.

    A half rounds up (Python's `round` would go to the even neighbour, so that adding a problem
    could leave the count or jump by two).

    >>> count_updates(128, 8, 512), count_updates(128, 16, 512), count_updates(128, 24, 512)
    (2, 4, 6)

    Args:
        num_problems: P.
        rows_per_problem: joint group size of one problem, N * G.
        rows_per_update: rows that one update should have.

    Raises:
        ValueError: an argument is below 1.
    """
    if min(num_problems, rows_per_problem, rows_per_update) < 1:
        raise ValueError(
            f"{num_problems} problems, {rows_per_problem} rows per problem and {rows_per_update} "
            "rows per update: each must be at least 1"
        )
    rows = num_problems * rows_per_problem
    rounded = (2 * rows + rows_per_update) // (2 * rows_per_update)
    return min(max(1, rounded), num_problems)


def split_updates(num_problems: int, rows_per_problem: int, rows_per_update: int) -> list[range]:
    """The problem indices of each update, in order; sizes differ by at most one.

    Every update holds whole problems: their joint groups, self and cross rows together. The list
    index is the `update_index` of `cross_floor`.

    >>> [len(update) for update in split_updates(128, 24, 512)]
    [21, 21, 22, 21, 21, 22]

    Args:
        num_problems: P.
        rows_per_problem: joint group size of one problem, N * G.
        rows_per_update: rows that one update should have.

    Returns:
        One range of problem indices per update; together they are range(num_problems).

    Raises:
        ValueError: an argument is below 1.
    """
    updates = count_updates(num_problems, rows_per_problem, rows_per_update)
    edges = [update * num_problems // updates for update in range(updates + 1)]
    return [range(start, stop) for start, stop in itertools.pairwise(edges)]


def loss_denominator(
    num_problems: int,
    responses_per_problem: int,
    num_sources: int,
    denominator: Literal["planned", "per_source"] = "planned",
) -> int:
    """Rows that divide the summed objective of one update.

    "planned" is every row planned for the update: problems * sources * responses. "per_source" is
    Eq. 53: one mean per source, added up; as all sources plan equally many rows, that is the same
    sum divided by one source's rows.

    Raises:
        ValueError: a count is below 1 or `denominator` is neither.
    """
    if min(num_problems, responses_per_problem, num_sources) < 1:
        raise ValueError(
            f"{num_problems} problems, {responses_per_problem} responses, {num_sources} sources: "
            "an update needs at least one of each"
        )
    rows_of_one_source = num_problems * responses_per_problem
    match denominator:
        case "planned":
            return rows_of_one_source * num_sources
        case "per_source":
            return rows_of_one_source
        case _:
            raise ValueError(f"denominator is {denominator!r}: choose planned or per_source")
