"""Statistics of a reward, against the data written out."""

import numpy as np
import pytest

from motif_jax.rewards.statistics import (
    LEVELS,
    calibration,
    compare,
    independent_questions,
    share_interval,
    summarise_values,
)

pytestmark = pytest.mark.quick


def test_moments_weigh_captions_by_frequency_and_quantiles_count_each_once():
    rng = np.random.default_rng(0)
    values, counts = rng.normal(3, 2, 50), rng.integers(0, 9, 50)
    statistics = summarise_values(values, counts)
    written_out = np.repeat(values, counts)
    assert statistics.mean == pytest.approx(written_out.mean())
    assert statistics.variance == pytest.approx(written_out.var())
    normalised = (values[counts > 0] - written_out.mean()) / written_out.std()
    for level in LEVELS:
        assert statistics.quantiles[f"{level:.2f}"] == pytest.approx(np.quantile(normalised, level))
        assert statistics.quantile(level) == statistics.quantiles[f"{level:.2f}"]
    assert list(statistics.quantiles) == [f"{5 * number / 100:.2f}" for number in range(1, 20)]
    np.testing.assert_allclose(statistics.normalise(values)[counts > 0], normalised)


def test_the_published_system_prints_two_decimals():
    quantiles = summarise_values(np.array([0.0, 1.0, 5.0]), np.array([1, 1, 1]), decimals=2).quantiles
    assert all(round(value, 2) == value for value in quantiles.values())


def test_an_anchor_is_normalised_to_0_and_thresholds_are_not_below_it():
    values, counts = np.array([0.0, 1.0, 5.0, 7.0]), np.array([1, 1, 2, 0])
    plain, anchored = summarise_values(values, counts), summarise_values(values, counts, anchor=1.0)
    # Mean (0 + 1 + 5 + 5) / 4 = 2.75, variance (2.75^2 + 1.75^2 + 2 * 2.25^2) / 4 = 5.1875; they do not change.
    assert (anchored.mean, anchored.variance) == (plain.mean, plain.variance) == (2.75, 5.1875)
    np.testing.assert_allclose(anchored.normalise(values), [-0.439057, 0, 1.756228, 2.634342], atol=1e-6)
    np.testing.assert_allclose(plain.normalise(values)[1], -0.768350, atol=1e-6)
    assert anchored.quantile(0.05) == 0.0 > plain.quantile(0.05)
    assert anchored.quantile(0.75) == pytest.approx(0.878114)  # halfway between the captions 1 and 5, as both have z


def test_agreement_counts_only_pairs_with_a_preference():
    rewards = np.array([[0.0, 1.0], [0.0, 1.0], [2.0, 1.0], [5.0, 5.0]])
    found = compare(rewards, np.array([1.0, 0.0, 0.2, 0.5]))
    assert (found["accuracy"], found["sided"]) == (pytest.approx(2 / 3), 3)
    p = 1 / (1 + np.exp(-1))
    loss = [-np.log(p), -np.log(1 - p), -0.2 * np.log(1 - p) - 0.8 * np.log(p), np.log(2)]
    assert found["loss"] == pytest.approx(np.mean(loss))
    assert np.isnan(compare(rewards[3:], np.array([0.5]))["accuracy"])


def test_the_interval_of_a_share_is_wilsons():
    # 24 of 31: (24 + 1.92) / (31 + 3.84) = 0.744 +- 1.96 / (1 + 3.84 / 31) * sqrt(0.1749 / 31 + 3.84 / 3844) = 0.142
    assert share_interval(24 / 31, 31) == pytest.approx((0.602, 0.886), abs=1e-3)
    assert share_interval(1.0, 1) == pytest.approx((0.2065, 1.0), abs=1e-4)  # 1 / (1 + 1.96 ** 2)
    assert share_interval(0.0, 1e6)[0] == 0.0


def test_pairs_that_show_the_same_two_captions_are_one_question():
    ids = np.array([[[0], [1]]] * 4 + [[[1], [0]]] * 4 + [[[2], [1]]] * 2)  # one question eight times, one twice
    assert independent_questions(ids) == (2, pytest.approx(10**2 / (8**2 + 2**2)))
    stretches = np.array([[[0, 1], [1, 0]], [[1, 0], [0, 1]], [[0, 1], [1, 1]]])
    assert independent_questions(stretches)[0] == 2


def test_calibration_compares_what_is_predicted_with_what_was_said():
    rewards = np.array([[0.0, 5.0]] * 4 + [[5.0, 0.0]] * 2)
    low, high = calibration(rewards, np.array([1, 1, 1, 0.5, 0, 0]))
    assert (low["stated"], low["pairs"]) == (0.0, 2)
    assert (high["stated"], high["pairs"]) == (0.875, 4)
    assert high["predicted"] == pytest.approx(1 / (1 + np.exp(-5)))
