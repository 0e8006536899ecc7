"""Beam search: keeps the W best partial continuations of each context and returns the best complete one.

Beams are compared by log_prob / length ** length_penalty. A finished beam stays among the others unchanged.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from motif_jax.language.generation import (
    FREE,
    NEVER,
    Generated,
    Shift,
    TokenLimits,
    last_token,
    next_logits,
    row_lengths,
)
from motif_jax.language.model import Decoder, EncoderDecoder, PrefixState, take_rows


class _Search(NamedTuple):
    """W beams of each of B contexts; row b * W + w is beam w of context b."""

    step: jax.Array
    reading: PrefixState
    hidden: jax.Array  # [B * W, width]
    token: jax.Array  # [B * W]
    carry: Any
    done: jax.Array  # [B, W]
    lengths: jax.Array  # [B, W]
    tokens: jax.Array  # [B, W, length]
    log_probs: jax.Array  # one per token. [B, W, length]


def search(
    model: Decoder | EncoderDecoder, tokens: jax.Array, segments: jax.Array, num_beams: int, limits: TokenLimits,
    length: int, length_penalty: jax.Array | float = 0.0, shift: Shift | None = None, arguments: Any = (),
    carry: Any = (),
) -> Generated:  # fmt: skip
    """The best continuation of each context.

    Args:
      tokens, segments: contexts of one segment each; see `model.py`. [B, L]
      num_beams: W; 1 is greedy decoding.
      length_penalty: 0 compares sums of log-probabilities, 1 their means.
      shift, arguments, carry: see `generation.generate`.
    """
    num_rows, width = len(tokens), num_beams
    vocabulary = model.config.vocabulary
    reading, hidden = model.begin(tokens, segments, length)
    spread = jnp.repeat(jnp.arange(num_rows), width)
    allowed = limits.allowed if limits.allowed.ndim == 1 else limits.allowed[spread]
    shape = num_rows, width
    first = _Search(
        jnp.int32(0), reading.rows(spread), hidden[spread], last_token(model, tokens, segments)[spread],
        take_rows(carry, spread), jnp.zeros(shape, bool), jnp.zeros(shape, jnp.int32),
        jnp.full((*shape, length), limits.pad, jnp.int32), jnp.zeros((*shape, length)),
    )  # fmt: skip

    def is_running(now: _Search) -> jax.Array:
        return (now.step < length) & ~now.done.all()

    def step(now: _Search) -> _Search:
        logits, carry = next_logits(model, now.hidden, now.token, allowed, shift, arguments, now.carry)
        odds = jax.nn.log_softmax(logits).reshape(num_rows, width, vocabulary)
        added = _possible(odds, now, limits)
        totals = now.log_probs.sum(-1, keepdims=True) + added
        # All beams are equal at the start, so only the first one is extended.
        totals = jnp.where((now.step == 0) & (jnp.arange(width) > 0)[:, None], NEVER, totals)
        lengths = now.lengths + ~now.done
        value = totals / jnp.maximum(lengths, 1)[..., None] ** length_penalty
        best = jax.lax.top_k(value.reshape(num_rows, -1), width)[1]  # [B, W]
        beam, token = best // vocabulary, best % vocabulary

        def pick(array: jax.Array) -> jax.Array:
            return jnp.take_along_axis(array, beam.reshape(*shape, *[1] * (array.ndim - 2)), 1)

        rows = (jnp.arange(num_rows)[:, None] * width + beam).reshape(-1)
        gain = jnp.take_along_axis(added.reshape(num_rows, -1), best, 1)
        reading, hidden = model.read(now.reading.rows(rows), token.reshape(-1))
        return _Search(
            now.step + 1, reading, hidden, token.reshape(-1), take_rows(carry, rows),
            pick(now.done) | limits.stops[token], pick(lengths), pick(now.tokens).at[:, :, now.step].set(token),
            pick(now.log_probs).at[:, :, now.step].set(gain),
        )  # fmt: skip

    last = jax.lax.while_loop(is_running, step, first)
    value = last.log_probs.sum(-1) / jnp.maximum(last.lengths, 1) ** length_penalty
    best = value.argmax(1)
    rows = jnp.arange(num_rows)
    tokens = last.tokens[rows, best]
    return Generated(tokens, row_lengths(tokens, limits), last.log_probs[rows, best])


def _possible(log_probs: jax.Array, now: _Search, limits: TokenLimits) -> jax.Array:
    """The log-probabilities of each beam's next tokens, minus infinity where they are impossible. [B, W, V]"""
    tokens = jnp.arange(log_probs.shape[-1])
    if limits.forced.shape[1]:  # only the forced token is possible; it keeps its own log-probability, if it has one
        forced = limits.forced[:, jnp.minimum(now.step, limits.forced.shape[1] - 1)][:, None, None]
        free = (forced == FREE) | (now.step >= limits.forced.shape[1])
        kept = jnp.where(log_probs == NEVER, 0.0, log_probs)
        log_probs = jnp.where(free, log_probs, jnp.where(tokens == forced, kept, NEVER))
    # A finished beam has one continuation: padding, with log-probability 0.
    only_pad = jnp.where(tokens == limits.pad, 0.0, NEVER)
    return jnp.where(now.done[..., None], only_pad, log_probs)
