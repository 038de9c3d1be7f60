"""Seeds needed: against textbook numbers and a simulation of the test itself."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hacpo.report.paired import mcnemar, paired_bootstrap
from hacpo.report.power import detection, power_of, seeds_needed


@pytest.mark.parametrize(("standardised", "pairs"), [(0.5, 34), (0.8, 15), (1.0, 10)])
def test_without_a_part_of_problems_it_is_the_paired_t_test(
    standardised: float, pairs: int
) -> None:
    """Pairs needed at 5%, two-sided, power 0.8, as tables of the paired t test print them."""
    assert seeds_needed(standardised, 1.0, 0.0) == pairs


def test_problems_alone_can_be_too_few_for_any_number_of_seeds() -> None:
    # 2.8 standard errors are needed: z of 0.975 plus z of 0.8
    assert seeds_needed(2.7, 0.01, 1.0) is None
    assert seeds_needed(2.9, 0.01, 1.0) is not None


@pytest.mark.parametrize("seeds", [3, 6])
def test_the_probability_is_what_a_simulation_finds(seeds: int) -> None:
    random = np.random.default_rng(0)
    effect, of_seeds, of_problems, problems, rounds = 0.06, 0.03, 0.2, 100, 500
    found = 0
    for _ in range(rounds):
        drawn = (
            effect
            + random.normal(0, of_seeds, (seeds, 1))
            + random.normal(0, of_problems, (1, problems))
            + np.zeros((seeds, problems))
        )
        p = paired_bootstrap([drawn], replicates=300).p
        assert p is not None
        found += p < 0.05
    expected = detection(effect, of_seeds**2, of_problems**2 / problems, seeds)
    assert found / rounds == pytest.approx(expected, abs=0.07)


@given(st.floats(0.001, 1), st.floats(1e-6, 1), st.floats(0, 0.1), st.integers(2, 200))
def test_more_seeds_find_more(effect: float, seed: float, problem: float, seeds: int) -> None:
    fewer, more = (detection(effect, seed, problem, n) for n in (seeds, seeds + 1))
    assert 0 <= fewer <= more + 1e-3 <= 1 + 2e-3


def test_the_parts_are_estimated_without_counting_noise_twice() -> None:
    random = np.random.default_rng(1)
    drawn = (
        0.1
        + random.normal(0, 0.05, (200, 1))
        + random.normal(0, 0.3, (1, 200))
        + random.normal(0, 0.4, (200, 200))
    )
    found = paired_bootstrap([drawn], replicates=100)
    assert found.seed_variance == pytest.approx(0.05**2 + 0.4**2 / 200, rel=0.3)
    assert found.problem_variance == pytest.approx(0.3**2 / 200, rel=0.3)


def test_what_cannot_be_said_is_said() -> None:
    one = power_of(paired_bootstrap([np.random.default_rng(0).normal(0.1, 1, (1, 50))]))
    assert (one.seeds, one.why) == (None, "one seed does not tell how much seeds differ")
    single = np.array([1.0, 0.0])
    assert "one seed" in power_of(mcnemar(single, single)).why
    none = power_of(paired_bootstrap([np.array([[0.5, -0.5], [-0.5, 0.5]])]))
    assert (none.seeds, none.why) == (None, "there is no difference to find")
    few = power_of(
        paired_bootstrap([np.random.default_rng(0).normal(0.01, 1, (1, 50)).repeat(2, 0)])
    )
    assert few.why == "no number of seeds: too few problems for it"
