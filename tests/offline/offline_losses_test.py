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


def test_expectile():
    """v = 1, y = 3, expectile 0.8: 0.8 * 4 = 3.2; v = 3, y = 1: 0.2 * 4 = 0.8."""
    found = losses.expectile_loss(jnp.array([1.0, 3.0]), jnp.array([3.0, 1.0]), 0.8)
    np.testing.assert_allclose(found, [3.2, 0.8], rtol=1e-6)
    slow = [(0.3 if y < v else 0.7) * (y - v) ** 2 for v, y in zip(V, Y, strict=True)]
    np.testing.assert_allclose(losses.expectile_loss(V, Y, 0.7), slow, rtol=1e-5)


def test_the_expectile_minimises_its_loss():
    """Of 0 and 1, evenly, the expectile t is t: t (1 - v) = (1 - t) v."""
    y = jnp.array([0.0, 1.0])
    slope = jax.grad(lambda v: losses.expectile_loss(jnp.full(2, v), y, 0.8).sum())
    assert slope(0.8) == pytest.approx(0, abs=1e-6)


def test_squares_are_plain_and_targets_have_no_gradient():
    np.testing.assert_allclose(losses.squared_loss(Q, Y), [(y - q) ** 2 for q, y in zip(Q, Y, strict=True)], rtol=1e-5)
    for loss in (losses.squared_loss, losses.huber_loss, lambda q, y: losses.expectile_loss(q, y, 0.7)):
        assert not jax.grad(lambda y, loss=loss: loss(jnp.asarray(Q), y).sum())(jnp.asarray(Y)).any()
        assert jax.grad(lambda q, loss=loss: loss(q, jnp.asarray(Y)).sum())(jnp.asarray(Q)).all()


def test_huber():
    q = np.array([0.0, 0.5, 3.0], np.float32)
    np.testing.assert_allclose(losses.huber_loss(q, np.zeros(3, np.float32)), [0, 0.125, 2.5])


def test_bootstrap():
    """r = 1, discount 0.9, what follows 2: 2.8; at the end of an episode 1."""
    found = losses.bootstrap(jnp.ones(2), jnp.array([0.0, 1.0]), jnp.full(2, 2.0), 0.9)
    np.testing.assert_allclose(found, [2.8, 1.0], rtol=1e-6)


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_conservative(temperature):
    slow = []
    for q, action in zip(Q_ALL / temperature, ACTION, strict=True):
        slow.append(math.log(sum(math.exp(one) for one in q)) - q[action])
    np.testing.assert_allclose(losses.conservative_loss(Q_ALL, ACTION, temperature), slow, rtol=1e-5)


def test_margin():
    slow = [sum(max(one - q[action] + 0.4, 0) ** 2 for one in q) for q, action in zip(Q_ALL, ACTION, strict=True)]
    np.testing.assert_allclose(losses.margin_loss(Q_ALL, ACTION, 0.4), slow, rtol=1e-5)


def test_weights_by_advantage():
    gap = jnp.array([-1.0, 0.0, 1.0, 50.0])
    np.testing.assert_allclose(losses.advantage_weight(gap, 2.0, 20.0), [math.exp(-2), 1, math.exp(2), 20], rtol=1e-6)
    np.testing.assert_allclose(losses.advantage_weight(gap, 0.0, 20.0), np.ones(4))  # plain cloning
    np.testing.assert_allclose(losses.sign_weight(gap, 0.9), [0.1, 0.1, 0.9, 0.9], rtol=1e-6)
    assert not jax.grad(lambda gap: losses.advantage_weight(gap, 2.0, 20.0).sum())(gap).any()


@pytest.mark.differs(
    "ilql",
    there="CHAI's log-sum-exp divides its arguments by their number, and the density of random features is 1 / 2d",
    here="it subtracts the logarithm of the number, and the density is 2 to the power of -d",
    where="motif_jax/offline/losses.py",
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
