"""Inputs of the losses: a batch, and parameters by their use; and functions that all losses share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from motif_jax.offline.values import Params
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
