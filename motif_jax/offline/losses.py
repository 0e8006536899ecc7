"""Inputs of the losses of offline reinforcement learning, and the losses: one number per decision; update.py sums them.

Notation: q and v are predictions, y their target. The arrays have equal shapes [...]; arrays over all actions have one
more axis, [..., A]. Squares have no factor of one half, as in the code of ILQL.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp

from motif_jax.offline.values import Params, taken
from motif_jax.transcripts.render import Rows

Sums = dict[str, jax.Array]


class Replies(NamedTuple):
    """Replies sampled from the policy in place of each utterance of a row (CHAI)."""

    features: jax.Array  # mean of hidden states up to their end. [B, K, n, width]
    log_probs: jax.Array  # [B, K, n]
    random: jax.Array  # features drawn uniformly from [-1, 1]. [B, K, m, width]


class Play(NamedTuple):
    """Inputs of the loss of groups, for each token that the agent wrote, at the position before it. [B, T] each"""

    advantage: Any
    weight: Any  # in a mean over the whole batch; 0 where no token was written
    log_written: Any  # log probability of the token when it was written


class TranscriptBatch(NamedTuple):
    """The input of one update."""

    rows: Rows
    replies: Any = ()  # `Replies`, for recipes with values of replies
    play: Any = ()  # `Play`, for recipes that learn from games they play


class Weights(NamedTuple):
    """Parameters by their use."""

    learnt: Params  # those of "policy", "condition", "trunk", "v", "q" that the recipe learns
    target: Params  # "trunk", "q": slowly following copies
    given: Params  # "policy" if it is not learnt

    @property
    def policy(self) -> Params:
        """Parameters of the policy, learnt or given."""
        return self.learnt["policy"] if "policy" in self.learnt else self.given["policy"]


def next_tokens(rows: Rows) -> jax.Array:
    """Returns the token after each position; undefined at the last position. [B, T]"""
    return jnp.roll(jnp.asarray(rows.tokens), -1, 1)


def masked_sum(values: jax.Array, mask: jax.Array) -> jax.Array:
    """Sums the values where the mask is true, ignoring others, even NaN."""
    return jnp.where(mask, values, 0.0).sum()


def in_chunks(read: Callable[[jax.Array, jax.Array], Any], chunk: int) -> Callable[[jax.Array, jax.Array], Any]:
    """Applies `read` to chunks of positions, to limit the memory of arrays over all tokens; gradients recompute them.

    `read`: (hidden [..., width], action [...]) -> a tree of arrays [...]. `chunk`: positions; 0: all.
    """
    if not chunk:
        return read

    def mapped(hidden: jax.Array, action: jax.Array) -> Any:
        shape, size = action.shape, action.size
        padding = -size % chunk
        flat = jnp.pad(hidden.reshape(size, -1), ((0, padding), (0, 0))).reshape(-1, chunk, hidden.shape[-1])
        actions = jnp.pad(action.reshape(size), (0, padding)).reshape(-1, chunk)
        results = jax.lax.map(lambda part: jax.checkpoint(read)(*part), (flat, actions))
        return jax.tree.map(lambda array: array.reshape(-1)[:size].reshape(shape), results)

    return mapped


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
