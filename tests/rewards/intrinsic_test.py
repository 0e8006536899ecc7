"""What the agent is paid."""

import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.rewards.intrinsic import Mix, extrinsic_reward, intrinsic_reward

pytestmark = pytest.mark.quick


SHARES = [2.0, 1.6, 1.0, 0.2, 0.1, 0.0, -1.0, -4.0, -0.202]  # of the best reward: 1, 0.8, 0.5, 0.1, ..., -0.101
# The aim and what comes near it pay in full again, smaller shares an eighth, those up to 0.1 nothing, and what is
# barely above that next to nothing.
OF_SHARES = [1, 0.7 / 0.9, 0.4 / 0.9 / 8, 0, 0, 0, -0.4 / 0.9 / 8, -1.9 / 0.9, -0.001 / 0.9 / 8]


@pytest.mark.parametrize("library", [np, jnp])
@pytest.mark.parametrize(("z", "counts", "mix", "paid"), [
    ([1.0] * 3, [1, 2, 3], Mix(threshold=0.5, count_exponent=3.0), [1, 1 / 8, 1 / 27]),  # 1 / n^3
    ([0.5, 0.75, 0.25, -1.0], [1] * 4, Mix(threshold=0.5), [0, 0.75, 0, 0]),  # strictly above
    ([0.5, 0.75, 0.25, -1.0], [1] * 4, Mix(threshold=-2.0), [0.5, 0.75, 0.25, -1.0]),  # negative ones, as published
    (SHARES, [2] * 9, Mix(threshold=0.5, count_exponent=3.0, best=2.0), OF_SHARES),
    ([2.0, 2.0, 0.5], [1, 2, 2], Mix(threshold=0.5, count_exponent=float("inf"), best=2.0), [1, 1, 0]),
])  # fmt: skip
def test_messages_are_paid_above_the_threshold_and_less_each_time(library, z, counts, mix, paid):
    found = intrinsic_reward(library.asarray(z, dtype="float32"), library.asarray(counts, dtype="int32"), mix)
    assert np.asarray(found) == pytest.approx(paid, abs=1e-6)


@pytest.mark.parametrize("library", [np, jnp])
def test_the_games_reward_is_scaled_then_clipped(library):
    reward = library.asarray([50.0, 200.0, -0.01], dtype="float32")
    # 0.1 * 50 = 5; 0.1 * 200 = 20 -> 10; 0.1 * -0.01 = -0.001
    found = extrinsic_reward(reward, Mix(scale=0.1, clip=10.0))
    assert np.asarray(found) == pytest.approx([5, 10, -0.001])
