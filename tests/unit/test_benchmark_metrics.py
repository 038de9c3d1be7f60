"""The metrics of a benchmark, against numbers computed by hand."""

from itertools import combinations

import numpy as np
import pytest

from hacpo.evals.metrics import best_verl, mean_metrics, pass_at_k, problem_metrics


def test_pass_at_k_by_hand():
    assert pass_at_k(5, 1, 2) == pytest.approx(2 / 5)  # 4 of the 10 pairs hold the correct one
    assert pass_at_k(5, 2, 2) == pytest.approx(7 / 10)  # 3 pairs of the 3 wrong ones
    assert pass_at_k(30, 1, 1) == pytest.approx(1 / 30)
    assert pass_at_k(30, 1, 30) == 1
    assert pass_at_k(30, 0, 30) == 0
    assert pass_at_k(30, 27, 4) == 1  # only 3 wrong ones


@pytest.mark.parametrize("n", [1, 2, 5, 7])
def test_pass_at_k_is_the_share_of_subsets_with_a_correct_sample(n: int):
    for c in range(n + 1):
        for k in range(1, n + 1):
            subsets = list(combinations([True] * c + [False] * (n - c), k))
            assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, subsets)) / len(subsets))


@pytest.mark.parametrize(("n", "c", "k"), [(3, 4, 1), (3, -1, 1), (3, 1, 4), (3, 1, 0)])
def test_impossible_counts_are_refused(n: int, c: int, k: int):
    with pytest.raises(ValueError, match="pass@"):
        pass_at_k(n, c, k)


def test_best_as_verl_estimates_it():
    assert best_verl(30, 0) == 0
    assert best_verl(30, 30) == 1
    assert best_verl(30, 1) == pytest.approx(0.6383, abs=1e-4)
    assert best_verl(30, 2) == pytest.approx(0.8738, abs=1e-4)


def test_it_is_the_limit_of_the_bootstrap():
    """Draw 30 of 30 with replacement, take the best: the mean over many draws."""
    scores = np.array([1.0] * 2 + [0.0] * 28)
    draws = np.random.default_rng(0).choice(scores, size=(100_000, 30)).max(axis=1)
    assert best_verl(30, 2) == pytest.approx(draws.mean(), abs=0.005)


def test_one_sample_has_only_its_accuracy():
    assert problem_metrics([1.0]) == {"avg@1": 1.0}


def test_thirty_samples_have_every_metric_by_name():
    metrics = problem_metrics([1.0] * 3 + [0.0] * 27)
    assert list(metrics) == [
        *("avg@30", "best@30", "best@30_verl"),
        *("pass@1", "pass@2", "pass@4", "pass@8", "pass@16", "pass@30"),
    ]
    assert metrics["avg@30"] == pytest.approx(metrics["pass@1"]) == pytest.approx(0.1)
    assert metrics["best@30"] == metrics["pass@30"] == 1
    assert metrics["best@30_verl"] == pytest.approx(1 - 0.9**30)
    assert metrics["pass@2"] == pytest.approx(1 - 27 * 26 / (30 * 29))


def test_means_are_over_problems():
    means = mean_metrics([[1.0, 0.0], [0.0, 0.0]])
    assert means["avg@2"] == 0.25
    assert means["best@2"] == 0.5
    assert means["best@2_verl"] == 0.375
