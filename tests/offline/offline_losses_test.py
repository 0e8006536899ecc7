"""Each loss against the same thing written as a loop over numbers."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.offline import losses

pytestmark = pytest.mark.quick
RNG = np.random.default_rng(0)
Q, V, Y = (RNG.normal(size=6).astype(np.float32) for _ in range(3))
Q_ALL, ACTION = RNG.normal(size=(6, 5)).astype(np.float32), RNG.integers(0, 5, 6)


def test_the_expectile_minimises_its_loss():
    """Of 0 and 1, evenly, the expectile t is t: t (1 - v) = (1 - t) v."""
    y = jnp.array([0.0, 1.0])
    slope = jax.grad(lambda v: losses.expectile_loss(jnp.full(2, v), y, 0.8).sum())
    assert slope(0.8) == pytest.approx(0, abs=1e-6)


@pytest.mark.differs(
    "ilql",
    there="CHAI's log-sum-exp divides its arguments by their number, and the density of random features is 1 / 2d",
    here="it subtracts the logarithm of the number, and the density is 2 to the power of -d",
)
def test_conservative_over_replies():
    replies, log_probs = RNG.normal(size=(6, 3)).astype(np.float32), -RNG.random((6, 3)).astype(np.float32)
    random, density = RNG.normal(size=(6, 2)).astype(np.float32), -4 * math.log(2)
    slow = []
    for row in range(6):
        weighted = [math.exp(q - p) for q, p in zip(replies[row], log_probs[row], strict=True)]
        weighted += [math.exp(q - density) for q in random[row]]
        slow.append(math.log(sum(weighted) / 5) - Q[row])
    np.testing.assert_allclose(losses.replies_loss(Q, replies, log_probs, random, density), slow, rtol=1e-4)
