"""Statistics over seeds, against slow and obvious computations."""

import itertools

import numpy as np
import pytest

from motif_jax.pages.figures import band, estimate, improvement, interquartile_mean, seeds_needed

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7, 8, 10])
def test_the_interquartile_mean_is_that_of_the_middle_half_of_copies(count):
    scores = np.random.default_rng(count).normal(size=count)
    copies = np.sort(np.repeat(scores, 4))  # now a quarter of them is a whole number
    assert interquartile_mean(scores) == pytest.approx(copies[count : 3 * count].mean())


def test_intervals_cover_the_mean_at_their_level(monkeypatch):
    monkeypatch.setattr("motif_jax.pages.figures.RESAMPLES", 500)  # enough to see it, and ten times as fast
    rng = np.random.default_rng(1)
    held = 0
    for trial in range(100):
        result = estimate(rng.normal(3, 1, 12), seed=trial)
        held += result.low < 3 < result.high
    assert 84 <= held <= 99  # 95 on average, somewhat fewer with twelve seeds


def test_the_probability_of_improvement_counts_all_pairs():
    ours, theirs = np.array([3.0, 1.0, 2.0]), np.array([2.0, 0.0])
    pairs = [1.0 if a > b else 0.5 if a == b else 0.0 for a, b in itertools.product(ours, theirs)]
    value, low, high, *_ = improvement(ours, theirs)
    assert value == pytest.approx(np.mean(pairs))  # (1 + 1 + 0 + 1 + 0.5 + 1) / 6
    assert low <= value <= high


def test_the_number_of_seeds_that_a_claim_needs_is_that_of_the_two_sample_formula():
    ours, theirs = np.array([4.0, 6.0]), np.array([1.0, 3.0])  # variances 2 and 2, difference 3
    assert seeds_needed(ours, theirs) == 4  # (1.96 + 0.84)^2 * 4 / 9 = 3.49
    assert seeds_needed(ours, ours) is None  # no difference
    assert seeds_needed(np.array([1.0]), np.array([2.0])) is None  # nothing says how far they spread
    assert seeds_needed(np.array([0.0, 100.0]), np.array([0.0, 100.1])) is None  # millions
    assert seeds_needed(np.array([1.0, 1.0]), np.array([0.0, 0.0])) == 2


def test_a_band_covers_the_steps_that_all_seeds_have():
    curves = [[(0, 0.0), (10, 1.0), (20, 2.0)], [(5, 1.5), (15, 2.5)]]
    line, (steps, low, high) = band(curves, points=3)
    assert line == [(5, 1.0), (10, 1.5), (15, 2.0)]  # of 0.5, 1, 1.5 and 1.5, 2, 2.5
    assert steps == [5, 10, 15]
    assert all(below <= mean <= above for below, (_, mean), above in zip(low, line, high, strict=True))
    assert band([[(0, 1.0), (1, 1.0)], [(2, 1.0), (3, 1.0)]]) is None
    assert band([]) is None
    assert band([[(4, 7.0)]]) == ([(4, 7.0)], ([4], [7.0], [7.0]))
