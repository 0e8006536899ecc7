"""Statistics of a reward and of the labels that it learns from, against the data written out."""

import numpy as np
import pytest
from conftest import refusal

from motif_jax.preferences import shards
from motif_jax.rewards import statistics as figures
from motif_jax.stages import train_reward
from motif_jax.stages.train_reward import fitting

pytestmark = pytest.mark.quick


def test_mean_and_variance_weigh_captions_by_frequency_and_quantiles_count_each_once():
    rng = np.random.default_rng(0)
    values, counts = rng.normal(3, 2, 50), rng.integers(0, 9, 50)
    statistics = figures.summarise_values(values, counts)
    written_out = np.repeat(values, counts)
    assert statistics.mean == pytest.approx(written_out.mean())
    assert statistics.variance == pytest.approx(written_out.var())
    normalised = (values[counts > 0] - written_out.mean()) / written_out.std()
    for level in figures.LEVELS:
        assert statistics.quantiles[f"{level:.2f}"] == pytest.approx(np.quantile(normalised, level))
        assert statistics.quantile(level) == statistics.quantiles[f"{level:.2f}"]
    assert list(statistics.quantiles) == [f"{5 * number / 100:.2f}" for number in range(1, 20)]
    np.testing.assert_allclose(statistics.normalise(values)[counts > 0], normalised)


def test_an_anchor_is_normalised_to_0_and_thresholds_are_not_below_it():
    values, counts = np.array([0.0, 1.0, 5.0, 7.0]), np.array([1, 1, 2, 0])
    plain, anchored = figures.summarise_values(values, counts), figures.summarise_values(values, counts, anchor=1.0)
    # Mean (0 + 1 + 5 + 5) / 4 = 2.75, variance (2.75^2 + 1.75^2 + 2 * 2.25^2) / 4 = 5.1875; they do not change.
    assert (anchored.mean, anchored.variance) == (plain.mean, plain.variance) == (2.75, 5.1875)
    np.testing.assert_allclose(anchored.normalise(values), [-0.439057, 0, 1.756228, 2.634342], atol=1e-6)
    np.testing.assert_allclose(plain.normalise(values)[1], -0.768350, atol=1e-6)
    assert anchored.quantile(0.05) == 0.0 > plain.quantile(0.05)
    assert anchored.quantile(0.75) == pytest.approx(0.878114)  # halfway between the captions 1 and 5, as both have z


def test_agreement_counts_only_pairs_with_a_preference():
    rewards = np.array([[0.0, 1.0], [0.0, 1.0], [2.0, 1.0], [5.0, 5.0]])
    comparison = figures.compare(rewards, np.array([1.0, 0.0, 0.2, 0.5]))
    assert (comparison["accuracy"], comparison["sided"]) == (pytest.approx(2 / 3), 3)
    p = 1 / (1 + np.exp(-1))
    loss = [-np.log(p), -np.log(1 - p), -0.2 * np.log(1 - p) - 0.8 * np.log(p), np.log(2)]
    assert comparison["loss"] == pytest.approx(np.mean(loss))
    assert np.isnan(figures.compare(rewards[3:], np.array([0.5]))["accuracy"])


def test_the_interval_of_a_share_is_wilsons():
    # 24 of 31: (24 + 1.92) / (31 + 3.84) = 0.744 +- 1.96 / (1 + 3.84 / 31) * sqrt(0.1749 / 31 + 3.84 / 3844) = 0.142
    assert figures.share_interval(24 / 31, 31) == pytest.approx((0.602, 0.886), abs=1e-3)
    assert figures.share_interval(1.0, 1) == pytest.approx((0.2065, 1.0), abs=1e-4)  # 1 / (1 + 1.96 ** 2)
    assert figures.share_interval(0.0, 1e6)[0] == 0.0


def test_pairs_that_show_the_same_two_captions_are_one_question():
    ids = np.array([[[0], [1]]] * 4 + [[[1], [0]]] * 4 + [[[2], [1]]] * 2)  # one question eight times, one twice
    assert figures.independent_questions(ids) == (2, pytest.approx(10**2 / (8**2 + 2**2)))
    stretches = np.array([[[0, 1], [1, 0]], [[1, 0], [0, 1]], [[0, 1], [1, 1]]])
    assert figures.independent_questions(stretches)[0] == 2


def test_calibration_compares_what_is_predicted_with_what_was_said():
    rewards = np.array([[0.0, 5.0]] * 4 + [[5.0, 0.0]] * 2)
    low, high = figures.calibration(rewards, np.array([1, 1, 1, 0.5, 0, 0]))
    assert (low["stated"], low["pairs"]) == (0.0, 2)
    assert (high["stated"], high["pairs"]) == (0.875, 4)
    assert high["predicted"] == pytest.approx(1 / (1 + np.exp(-5)))


def test_targets():
    codes = np.array([0, 1, 2, 3], np.int8)
    np.testing.assert_array_equal(shards.soft_target(codes, None), [0, 1, 0.5, np.nan])
    prob = np.array([0.1, np.nan, 0.55, np.nan], np.float32)
    np.testing.assert_allclose(shards.soft_target(codes, prob), [0.1, 1, 0.55, np.nan])


def test_several_annotators_are_mixed_and_all_must_know_and_a_tie_stays_one():
    weights = train_reward.parse_annotators("a:3,b")
    assert weights == {"a": 0.75, "b": 0.25}
    mixed = shards.mix({"a": np.array([0, 1, np.nan, 0.5]), "b": np.array([1, 1, 0, np.nan])}, weights)
    np.testing.assert_allclose(mixed, [0.25, 1, np.nan, np.nan])
    assert train_reward.parse_annotators("") == {}
    assert train_reward.parse_annotators("a") == {"a": 1.0}
    weights = train_reward.parse_annotators("a:1,b:2,c:3,d:1")  # sevenths, which add up to 1 + 1.2e-7 in float32
    targets = {name: shards.soft_target(np.array([2, 0, 1], np.int8), None) for name in weights}
    assert shards.mix(targets, weights).tolist() == [0.5, 0, 1]


@pytest.mark.parametrize(("target", "sentence"), [
    ([np.nan, np.nan], "0 labels for the first moment, 0 for the second and 0 ties"),
    ([0, 0.5], "1 labels for the first moment, 0 for the second and 1 ties"),
])  # fmt: skip
def test_labels_that_teach_nothing_are_refused(target, sentence):
    refusal(lambda: fitting.check_targets(np.array(target, np.float32), "mine"), f"'mine': it has {sentence}; ")
    fitting.check_targets(np.array([0, 1, 0.5, np.nan], np.float32), "mine")


def test_a_door_that_is_paid_half_of_gold_is_inflated_six_times():
    values, worth = np.array([5.6, 0.0, 2.8, 2.8, 5.0, -1.0]), np.array([3.0, 0.0, 0.25, 1.5, 3.0, -6.0])
    held_out = np.array([False, False, True, True, True, True])
    comparison = figures.compare_with_worth(values, worth, np.array([30, 50, 0, 0, 0, 0]), held_out, neutral=0.0)
    # Worth 0.25 of 3 is paid 2.8 of 5.6: 6 times its share; worth 1.5 of 3 is paid the same: once. The median is 3.5.
    assert comparison["inflation"] == pytest.approx(3.5)
    level = {"worth": 0.25, "due": pytest.approx(1 / 12), "share": pytest.approx(0.5), "captions": 1}
    assert comparison["levels"][1] == level
    assert comparison["rank"] == pytest.approx(figures.correlation(np.array([2.5, 2.5, 4, 1]), np.array([2, 3, 4, 1])))


def test_ranks_are_those_of_counting():
    values = np.random.default_rng(0).integers(0, 9, 40).astype(float)
    twin = [(values < value).sum() + ((values == value).sum() + 1) / 2 for value in values]
    assert figures.ranks(values).tolist() == twin
    assert np.isnan(figures.correlation(np.ones(3), np.arange(3.0)))
    assert np.isnan(figures.correlation(np.ones(1), np.ones(1)))
