"""Losses of offline reinforcement learning, one number per decision; update.py sums over decisions.

Notation: q and v are predictions, y their target. The arrays have equal shapes [...]; arrays over all actions have one
more axis, [..., A]. Squares have no factor of one half, as in the code of ILQL.
"""

from __future__ import annotations

import chex
import jax
import jax.numpy as jnp


def expectile_loss(v: jax.Array, y: jax.Array, expectile: float) -> jax.Array:
    """|expectile - 1{y < v}| (y - v)^2: for expectiles near 1, its minimum is near the maximum of y.

    Implicit Q-learning, arXiv 2110.06169, equation 5. An expectile of 0.5 gives the mean, the value of the recorded
    policy ("single step", SARSA).
    """
    chex.assert_equal_shape([v, y])
    y = jax.lax.stop_gradient(y)
    return jnp.abs(expectile - (y < v)) * jnp.square(y - v)


def bootstrap(reward: jax.Array, terminal: jax.Array, following: jax.Array, discount: float) -> jax.Array:
    """y = r + discount (1 - terminal) following"""
    chex.assert_equal_shape([reward, terminal, following])
    return reward + discount * (1.0 - terminal) * following


def margin_loss(q_all: jax.Array, action: jax.Array, margin: float) -> jax.Array:
    """Sum over actions a of max(Q(a) - Q(recorded) + margin, 0)^2."""
    gap = q_all - taken(q_all, action)[..., None] + margin
    return jnp.square(jnp.maximum(gap, 0.0)).sum(-1)


def cross_entropy(logits: jax.Array, action: jax.Array) -> jax.Array:
    """-log softmax(logits)[action]"""
    return jax.nn.logsumexp(logits, -1) - taken(logits, action)


def replies_loss(
    q: jax.Array, q_replies: jax.Array, log_probs: jax.Array, q_random: jax.Array, log_density: float
) -> jax.Array:
    """log sum exp over {Q(reply) - log p(reply), Q(random) - log p(random)} - Q(recorded): CQL over utterances.

    CHAI, arXiv 2204.08426. Two corrections of its code: it divides by the number of arguments, where the logarithm is
    due, and uses log 2d as the log density of random features in [-1, 1]^d, which is -d log 2.

    `q`: of the recorded utterance [...]. `q_replies`, `log_probs`: of sampled replies, under the policy that sampled
    them [..., n]. `q_random`: of random features [..., m].
    """
    chex.assert_equal_shape([q_replies, log_probs])
    weighted = jnp.concatenate([q_replies - log_probs, q_random - log_density], -1)
    return jax.nn.logsumexp(weighted, -1) - jnp.log(weighted.shape[-1]) - q


def taken(values: jax.Array, action: jax.Array) -> jax.Array:
    """Selects the value of one action. [..., A], [...] -> [...]"""
    chex.assert_equal_shape_prefix([values, action], action.ndim)
    return jnp.take_along_axis(values, action[..., None], -1)[..., 0]
