"""What the losses of an algorithm are computed from: a batch, parameters by their use; and what all of them need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from motif_jax.offline.values import Params
from motif_jax.transcripts.render import Rows

Sums = dict[str, jax.Array]


class Replies(NamedTuple):
    """Replies that were sampled from the policy in place of each utterance of a row (CHAI)."""

    features: jax.Array  # the running mean of hidden states at their end. [B, K, n, width]
    log_probs: jax.Array  # [B, K, n]
    random: jax.Array  # features drawn evenly from [-1, 1]. [B, K, m, width]


class Batch(NamedTuple):
    """Rows of transcripts, and what a recipe needs beside them: the input of one update."""

    rows: Rows
    replies: Any = ()  # `Replies`, for recipes with values of replies


class Weights(NamedTuple):
    """Parameters by their use. What is learnt stands in the first, what is only read in the others."""

    learnt: Params  # "policy", "condition", "trunk", "v", "q": as many as the recipe has
    target: Params  # "trunk", "q": slowly following copies
    given: Params  # "policy", where it is not learnt

    @property
    def policy(self) -> Params:
        """Parameters of the policy, learnt or given."""
        return self.learnt["policy"] if "policy" in self.learnt else self.given["policy"]


def next_tokens(rows: Rows) -> jax.Array:
    """The token after each position; that of the last position is of no meaning. [B, T]"""
    return jnp.roll(jnp.asarray(rows.tokens), -1, 1)


def masked_sum(values: jax.Array, mask: jax.Array) -> jax.Array:
    """The sum where the mask is true, whatever stands elsewhere."""
    return jnp.where(mask, values, 0.0).sum()


def in_chunks(read: Callable[[jax.Array, jax.Array], Any], chunk: int) -> Callable[[jax.Array, jax.Array], Any]:
    """`read` for some positions at a time, so that arrays over all tokens are small; they are computed again for the
    gradient.

    Args:
      read: (hidden [..., width], action [...]) -> a tree of arrays [...].
      chunk: positions at a time; 0: all at once.
    """
    if not chunk:
        return read

    def mapped(hidden: jax.Array, action: jax.Array) -> Any:
        shape, size = action.shape, action.size
        more = -size % chunk
        flat = jnp.pad(hidden.reshape(size, -1), ((0, more), (0, 0))).reshape(-1, chunk, hidden.shape[-1])
        actions = jnp.pad(action.reshape(size), (0, more)).reshape(-1, chunk)
        found = jax.lax.map(lambda part: jax.checkpoint(read)(*part), (flat, actions))
        return jax.tree.map(lambda array: array.reshape(-1)[:size].reshape(shape), found)

    return mapped
