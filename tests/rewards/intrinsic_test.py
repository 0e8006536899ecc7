"""What the agent is paid."""

import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.rewards.intrinsic import Mix, extrinsic_reward, intrinsic_reward

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("library", [np, jnp])
def test_a_message_is_worth_less_each_time_it_is_seen(library):
    z, counts = library.full(3, 1.0, dtype="float32"), library.asarray([1, 2, 3])
    paid = intrinsic_reward(z, counts, Mix(threshold=0.5, count_exponent=3.0))
    assert np.asarray(paid) == pytest.approx([1, 1 / 8, 1 / 27])  # 1 / n^3


@pytest.mark.parametrize("library", [np, jnp])
def test_only_what_lies_above_the_threshold_is_paid(library):
    z = library.asarray([0.5, 0.75, 0.25, -1.0], dtype="float32")
    paid = intrinsic_reward(z, library.ones(4, dtype="int32"), Mix(threshold=0.5))
    assert np.asarray(paid).tolist() == [0, 0.75, 0, 0]  # strictly above
    # A threshold below zero lets negative rewards through, as published.
    paid = intrinsic_reward(z, library.ones(4, dtype="int32"), Mix(threshold=-2.0))
    assert np.asarray(paid).tolist() == [0.5, 0.75, 0.25, -1.0]


@pytest.mark.parametrize("library", [np, jnp])
def test_the_games_reward_is_scaled_then_clipped(library):
    reward = library.asarray([50.0, 200.0, -0.01], dtype="float32")
    # 0.1 * 50 = 5; 0.1 * 200 = 20 -> 10; 0.1 * -0.01 = -0.001
    found = extrinsic_reward(reward, Mix(scale=0.1, clip=10.0))
    assert np.asarray(found) == pytest.approx([5, 10, -0.001])


@pytest.mark.parametrize("library", [np, jnp])
def test_shares_of_the_best_reward_are_paid(library):
    z = library.asarray([2.0, 1.6, 1.0, 0.2, 0.1, 0.0, -1.0, -4.0, -0.202], dtype="float32")
    twice = library.full(9, 2, dtype="int32")
    paid = intrinsic_reward(z, twice, Mix(threshold=0.5, count_exponent=3.0, best=2.0))
    # The shares are 1, 0.8, 0.5, 0.1, 0.05, 0, -0.5, -2 and -0.101. The aim and what comes near it pay in full again,
    # smaller shares an eighth, those up to 0.1 nothing, and what is barely above that next to nothing.
    expected = [1, 0.7 / 0.9, 0.4 / 0.9 / 8, 0, 0, 0, -0.4 / 0.9 / 8, -1.9 / 0.9, -0.001 / 0.9 / 8]
    assert np.asarray(paid) == pytest.approx(expected, abs=1e-6)
