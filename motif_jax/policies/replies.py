"""Samples alternative replies from a policy in place of each of the agent's texts, for CHAI (arXiv 2204.08426).

A reply continues the episode before the text. CHAI learns from the reply's log-probability and its feature: the mean of
the policy's hidden states from the episode's first token to the reply's last one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from motif_jax.language.generation import Limits, generate
from motif_jax.language.sampling import Sampling
from motif_jax.offline import mdp
from motif_jax.offline.batch import Replies
from motif_jax.transcripts.render import Rows


def make_replies(
    graph: Any, allowed: jax.Array, stop: int, count: int, length: int, max_texts: int
) -> Callable[[Any, Rows, jax.Array], Replies]:
    """The function that samples replies, to be compiled: (the policy's parameters, rows, keys [B]) -> `Replies`.

    Args:
      graph: `nnx.merge(graph, parameters)` is the policy.
      allowed: tokens that may be generated. [V] bool
      stop: the token that ends a reply.
      count: number of replies, and of random features, for each of the agent's texts.
      length: maximum number of tokens of a reply.
      max_texts: number of texts per row that get replies; further texts get none.
    """
    stops = jnp.zeros(len(allowed), bool).at[stop].set(True)

    def sample(params: Any, rows: Rows, keys: jax.Array) -> Replies:
        policy = nnx.merge(graph, params)
        num_rows, width = rows.tokens.shape
        starts = jnp.where(mdp.utterance_starts(rows), jnp.arange(width), width)
        start = jnp.sort(starts, 1)[:, :max_texts]  # [B, K]; `width` where there are fewer texts
        start = jnp.pad(start, ((0, 0), (0, max(max_texts - width, 0))), constant_values=width)
        segment = jnp.take_along_axis(rows.segments, jnp.minimum(start, width - 1), 1)
        before = (rows.segments[:, None] == segment[..., None]) & (jnp.arange(width) <= start[..., None])  # [B, K, T]
        segments = jnp.repeat(before.reshape(-1, width).astype(jnp.int32), count, 0)  # [B * K * n, T]
        tokens = jnp.repeat(rows.tokens, max_texts * count, 0)
        each = jax.vmap(lambda key: jax.random.split(key, max_texts * count))(keys).reshape(-1)
        limits = Limits(allowed, stops, jnp.zeros((len(tokens), 0), jnp.int32))
        found = generate(policy, tokens, segments, each, Sampling(), limits, length)

        # ---- features: one pass over the context and the reply
        there = jnp.arange(length) < found.lengths[:, None]
        whole = jnp.concatenate([segments, there.astype(jnp.int32)], 1)
        hidden = policy(jnp.concatenate([tokens, found.tokens], 1), whole).astype(jnp.float32)
        feature = jnp.where(whole[..., None] > 0, hidden, 0.0).sum(1) / jnp.maximum(whole.sum(1), 1)[:, None]
        shape = num_rows, max_texts, count
        random = jax.vmap(lambda key: jax.random.uniform(jax.random.fold_in(key, 1), (*shape[1:], hidden.shape[-1]),
                                                         minval=-1.0))(keys)  # fmt: skip
        return Replies(feature.reshape(*shape, -1), found.log_probs.sum(1).reshape(shape), random)

    return sample
