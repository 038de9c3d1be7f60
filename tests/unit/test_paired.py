"""Paired tests: against hand calculations, scipy and simulations of what they promise."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from hacpo.report.paired import holm, mcnemar, mcnemar_p, paired_bootstrap

P_VALUES = st.lists(st.floats(0, 1), min_size=1, max_size=20)


def test_mcnemar_by_hand() -> None:
    # won 5, lost 1 of 6 that differ: 2 * (1 + 6) / 2^6 = 14/64
    assert mcnemar_p(5, 1) == pytest.approx(14 / 64)
    assert mcnemar_p(0, 0) == 1.0
    assert mcnemar_p(3, 3) == 1.0


@given(st.integers(0, 300), st.integers(0, 300))
def test_mcnemar_is_the_exact_binomial_test(won: int, lost: int) -> None:
    expected = stats.binomtest(won, won + lost).pvalue if won + lost else 1.0
    assert mcnemar_p(won, lost) == pytest.approx(expected, abs=1e-12)
    assert mcnemar_p(won, lost) == mcnemar_p(lost, won)


def test_mcnemar_counts_what_only_one_side_solves() -> None:
    first = np.array([1, 1, 1, 1, 0, 0, 1, 0, 1, 0], dtype=float)
    second = np.array([1, 0, 0, 0, 1, 0, 1, 0, 1, 0], dtype=float)
    found = mcnemar(first, second)
    assert (found.won, found.lost, found.problems) == (3, 1, 10)
    assert found.mean == pytest.approx(0.2)
    assert found.p == pytest.approx(2 * (1 + 4) / 16)
    # Bonett and Price: (4/12, 2/12), middle 2/12, variance (6/12 - 4/144) / 12
    half = 1.959964 * math.sqrt((0.5 - 4 / 144) / 12)
    assert (found.low, found.high) == pytest.approx((1 / 6 - half, 1 / 6 + half), abs=1e-6)


def test_the_papers_math500_gain_is_significant_and_its_amc23_gain_is_not() -> None:
    """HACPO against GSPO, Qwen3-4B, if 60 of 500 and 11 of 40 problems differ."""
    assert mcnemar_p(44, 16) == pytest.approx(4e-4, rel=0.3)
    assert mcnemar_p(9, 2) == pytest.approx(0.065, abs=0.002)


def test_holm_by_hand() -> None:
    # sorted 0.01 x 4, 0.02 x 3, 0.03 x 2, 0.2 x 1
    assert holm([0.03, 0.01, 0.2, 0.02]) == pytest.approx([0.06, 0.04, 0.2, 0.06])
    assert holm([0.04, 0.9]) == pytest.approx([0.08, 0.9])
    assert holm([]) == []


@given(P_VALUES, st.randoms(use_true_random=False))
def test_holm_corrects_upwards_keeps_order_and_ignores_positions(
    values: list[float], random
) -> None:  # type: ignore[no-untyped-def]
    found = holm(values)
    assert all(p <= q <= 1 for p, q in zip(values, found, strict=True))
    assert max(found) >= min(1.0, len(values) * min(values))
    ranked = [q for _, q in sorted(zip(values, found, strict=True))]
    assert ranked == sorted(ranked)
    order = list(range(len(values)))
    random.shuffle(order)
    assert holm([values[i] for i in order]) == pytest.approx([found[i] for i in order])


def test_one_seed_is_a_t_interval_over_problems() -> None:
    differences = np.random.default_rng(0).normal(0.1, 0.4, (1, 200))
    found = paired_bootstrap([differences])
    expected = stats.ttest_1samp(differences[0], 0)
    low, high = expected.confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.005)
    assert found.p == pytest.approx(expected.pvalue, rel=0.3)
    assert (found.seeds, found.problems, found.seed_variance) == (1, 200, None)


def test_seeds_that_differ_and_problems_that_do_not_are_a_t_interval_over_seeds() -> None:
    by_seed = np.array([0.02, 0.05, 0.08, 0.03])
    found = paired_bootstrap([np.repeat(by_seed[:, None], 50, axis=1)], replicates=20_000)
    expected = stats.ttest_1samp(by_seed, 0)
    assert (found.low, found.high) == pytest.approx(expected.confidence_interval(0.95), abs=0.002)
    assert found.p == pytest.approx(expected.pvalue, rel=0.05)
    assert found.problem_variance == pytest.approx(0, abs=1e-12)
    assert found.seed_variance == pytest.approx(by_seed.var(ddof=1))


def test_benchmarks_weigh_the_same_whatever_their_size() -> None:
    small, large = np.full((2, 10), 0.4), np.full((2, 1000), 0.0)
    assert paired_bootstrap([small, large]).mean == pytest.approx(0.2)


def test_equal_data_gives_equal_numbers_and_the_other_side_the_opposite() -> None:
    differences = np.random.default_rng(1).normal(0.05, 0.4, (3, 80))
    found, again = paired_bootstrap([differences]), paired_bootstrap([differences.copy()])
    opposite = paired_bootstrap([-differences])
    assert found == again
    assert (opposite.mean, opposite.p) == pytest.approx((-found.mean, found.p))
    assert found.low is not None
    assert opposite.high == pytest.approx(-found.low)


def test_p_is_below_5_percent_exactly_when_the_interval_leaves_out_zero() -> None:
    random = np.random.default_rng(2)
    for _ in range(50):
        found = paired_bootstrap([random.normal(0.05, 0.3, (3, 60))], replicates=300)
        assert found.p is not None
        assert found.low is not None
        assert found.high is not None
        assert (found.p < 0.05) == (found.low > 0 or found.high < 0)


def test_a_few_problems_that_all_improve_are_no_proof() -> None:
    found = paired_bootstrap([np.ones((1, 4))])
    assert (found.mean, found.p) == (1.0, 2 / 2**4)  # all four signs alike by chance


def test_no_difference_at_all_is_p_1_and_one_problem_has_no_interval() -> None:
    same = paired_bootstrap([np.zeros((2, 30))])
    assert (same.mean, same.low, same.high, same.p) == (0, 0, 0, 1)
    single = paired_bootstrap([np.ones((2, 1))])
    assert (single.low, single.high, single.p) == (None, None, None)


@pytest.mark.parametrize("seeds", [1, 2, 3, 8])
@pytest.mark.parametrize(
    ("of_seeds", "of_problems", "noise"),
    [(0.0, 0.3, 0.3), (0.03, 0.1, 0.4), (0.1, 0.2, 0.3), (0.0, 0.0, 0.5)],
)
def test_intervals_cover_the_true_difference(
    seeds: int, of_seeds: float, of_problems: float, noise: float
) -> None:
    """Whatever differs: seeds, problems, both; one seed is asked about its own problems only."""
    random = np.random.default_rng(3)
    covered, rounds = 0, 400
    of_seeds = of_seeds if seeds > 1 else 0.0
    for _ in range(rounds):
        drawn = 0.05 + (
            random.normal(0, of_seeds, (seeds, 1))
            + random.normal(0, of_problems, (1, 60))
            + random.normal(0, noise, (seeds, 60))
        )
        found = paired_bootstrap([drawn], replicates=400)
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= 0.05 <= found.high
    assert covered / rounds >= 0.92  # 0.94 less three standard errors of a simulation as short


def test_false_alarms_of_mcnemar_are_at_most_5_percent() -> None:
    random = np.random.default_rng(4)
    alarms = 0
    for _ in range(1000):
        first, second = (random.random((2, 200)) < 0.6).astype(float)
        p = mcnemar(first, second).p
        assert p is not None
        alarms += p < 0.05
    assert alarms <= 60
