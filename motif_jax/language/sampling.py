"""Draws the next token from logits. Temperature, top-k and top-p are arguments, so they need no new compilation."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

NEVER = -jnp.inf


class Sampling(NamedTuple):
    """The values of sampling: each is one number, or one per row [B]."""

    temperature: jax.Array | float = 1.0  # 0: the most probable token
    top_k: jax.Array | int = 0  # only the k most probable tokens; 0: all
    top_p: jax.Array | float = 1.0  # only the most probable tokens whose total probability reaches this; 1: all


def draw(logits: jax.Array, keys: jax.Array, sampling: Sampling) -> jax.Array:
    """Draws one token per row.

    Args:
      logits: [B, V]; minus infinity for tokens that may not be drawn.
      keys: random keys, one per row [B], so a row's token does not depend on the other rows.
      sampling: the temperature is applied first, then top-k, then top-p, as in transformers.

    Returns:
      Tokens. [B]
    """
    temperature, top_k, top_p = (jnp.broadcast_to(value, logits.shape[:1])[:, None] for value in sampling)
    scaled = logits / jnp.where(temperature > 0, temperature, 1)
    kept = jax.lax.cond(((top_k > 0) | (top_p < 1)).any(), lambda: _keep_probable(scaled, top_k, top_p), lambda: scaled)
    drawn = jax.vmap(jax.random.categorical)(keys, kept)
    return jnp.where(temperature[:, 0] > 0, drawn, logits.argmax(-1))


def _keep_probable(logits: jax.Array, top_k: jax.Array, top_p: jax.Array) -> jax.Array:
    """Excludes logits below the k-th largest, then tokens beyond the cumulative probability `top_p`."""
    order = jnp.argsort(-logits, -1)  # stable: among equal logits the first one is kept
    ranked = jnp.take_along_axis(logits, order, -1)
    rank = jnp.arange(logits.shape[-1])
    ranked = jnp.where((top_k > 0) & (rank >= top_k), NEVER, ranked)
    odds = jax.nn.softmax(ranked, -1)
    before = jnp.cumsum(odds, -1) - odds  # total probability of the more probable tokens
    ranked = jnp.where((before >= top_p) & (rank > 0), NEVER, ranked)
    return jnp.put_along_axis(logits, order, ranked, -1, inplace=False)
