"""Rewards compared with the worth that rules give."""

import numpy as np
import pytest

from motif_jax.rewards.against_worth import compare_with_worth, correlation, ranks

pytestmark = pytest.mark.quick
HELD_OUT = np.array([False, False, True, True, True, True])
WORTH = np.array([3.0, 0.0, 0.25, 1.5, 3.0, -6.0])
COUNTS = np.array([30, 50, 0, 0, 0, 0])


def test_a_reward_in_proportion_to_the_worth_is_not_inflated():
    found = compare_with_worth(2 * WORTH + 7, WORTH, COUNTS, HELD_OUT, neutral=7.0)
    assert (found["captions"], found["linear"], found["rank"], found["inflation"]) == (4, *[pytest.approx(1.0)] * 3)
    assert [row["worth"] for row in found["levels"]] == [-6, 0.25, 1.5, 3]
    assert all(row["share"] == pytest.approx(row["due"]) for row in found["levels"])


def test_a_door_that_is_paid_half_of_gold_is_inflated_six_times():
    values = np.array([5.6, 0.0, 2.8, 2.8, 5.0, -1.0])
    found = compare_with_worth(values, WORTH, COUNTS, HELD_OUT, neutral=0.0)
    # Worth 0.25 of 3 is paid 2.8 of 5.6: 6 times its share; worth 1.5 of 3 is paid the same: once. The median is 3.5.
    assert found["inflation"] == pytest.approx(3.5)
    assert found["levels"][1] == {
        "worth": 0.25,
        "due": pytest.approx(1 / 12),
        "share": pytest.approx(0.5),
        "captions": 1,
    }
    assert found["rank"] == pytest.approx(correlation(np.array([2.5, 2.5, 4, 1]), np.array([2, 3, 4, 1])))


@pytest.mark.parametrize(
    ("values", "neutral", "counts"),
    [(WORTH, None, COUNTS), (WORTH, 0.0, COUNTS // 2), (-WORTH, 0.0, COUNTS)],
    ids=["no neutral moment", "too few of the best", "the best is paid less than nothing"],
)
def test_without_a_scale_there_are_only_correlations(values, neutral, counts):
    found = compare_with_worth(values, WORTH, counts, HELD_OUT, neutral)
    assert np.isnan(found["inflation"])
    assert found["levels"] == []
    assert abs(found["linear"]) == pytest.approx(1.0)


def test_ranks_are_those_of_counting():
    values = np.random.default_rng(0).integers(0, 9, 40).astype(float)
    twin = [(values < value).sum() + ((values == value).sum() + 1) / 2 for value in values]
    assert ranks(values).tolist() == twin
    assert np.isnan(correlation(np.ones(3), np.arange(3.0)))
    assert np.isnan(correlation(np.ones(1), np.ones(1)))
