"""Generation of text: one compiled loop that reads a token, chooses the next, and ends when all rows have.

Nothing in it has the shape of what was said so far: keys and values lie in a cache with room for everything. So one
program serves every temperature, top-k, top-p, set of allowed tokens and forced token.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from motif_jax.language.model import Decoder, EncoderDecoder, Reading
from motif_jax.language.sampling import NEVER, Sampling, draw

# (arguments, carry, token [B], hidden [B, width]) -> (what is added to the logits [B, V], carry). `arguments` are the
# same at every step: weights, factors. `carry` is what it remembers of each row, with the rows on axis 1 of its arrays,
# such as the cache of a model of its own. `token` was just read, and `hidden` is what the language model made of it.
Shift = Callable[[Any, Any, jax.Array, jax.Array], tuple[jax.Array, Any]]
FREE = -1  # in place of a forced token: the model chooses


class Limits(NamedTuple):
    """What may be generated."""

    allowed: jax.Array  # [V] or [B, V] bool
    stops: jax.Array  # tokens that end a row. [V] bool
    forced: jax.Array  # tokens that are taken whatever the model thinks, FREE elsewhere. [B, up to `length`]
    pad: jax.Array | int = 0  # what rows have after their end


class Generated(NamedTuple):
    """Continuations of B contexts."""

    tokens: jax.Array  # up to and including the token that ended a row, then padding. [B, length]
    lengths: jax.Array  # tokens before the padding. [B]
    log_probs: jax.Array  # of each token among those allowed, shift included, at temperature 1. [B, length]
    carry: Any  # what the shift remembers at the end


class _Loop(NamedTuple):
    step: jax.Array
    reading: Reading
    hidden: jax.Array
    token: jax.Array  # the last that was read
    carry: Any
    done: jax.Array
    tokens: jax.Array
    log_probs: jax.Array


def no_limits(vocabulary: int, num_rows: int, ends: tuple[int, ...] = ()) -> Limits:
    """All tokens are allowed; rows end with the tokens `ends`."""
    stops = jnp.zeros(vocabulary, bool).at[jnp.array(ends, int)].set(True)
    return Limits(jnp.ones(vocabulary, bool), stops, jnp.zeros((num_rows, 0), jnp.int32))


def generate(
    model: Decoder | EncoderDecoder, tokens: jax.Array, segments: jax.Array, keys: jax.Array, sampling: Sampling,
    limits: Limits, length: int, shift: Shift | None = None, arguments: Any = (), carry: Any = (),
) -> Generated:  # fmt: skip
    """Continues contexts.

    Args:
      model: the language model.
      tokens, segments: contexts, of one segment; see `model.py`. [B, L]
      keys: random keys, one per row. [B]
      sampling: how tokens are drawn.
      limits: what may be generated.
      length: tokens per row, at most.
      shift: adds to the logits, see `Shift`.
      arguments, carry: of the shift. Its carry has read the context except for the last token.
    """
    reading, hidden = model.begin(tokens, segments, length)
    num_rows = len(tokens)
    empty = jnp.zeros((num_rows, length))
    first = _Loop(
        jnp.int32(0), reading, hidden, last_token(model, tokens, segments), carry, jnp.zeros(num_rows, bool),
        jnp.full((num_rows, length), limits.pad, jnp.int32), empty,
    )  # fmt: skip

    def goes_on(loop: _Loop) -> jax.Array:
        return (loop.step < length) & ~loop.done.all()

    def turn(loop: _Loop) -> _Loop:
        logits, carry = next_logits(model, loop.hidden, loop.token, limits, shift, arguments, loop.carry)
        step_keys = jax.vmap(jax.random.fold_in, (0, None))(keys, loop.step)
        drawn = draw(logits, step_keys, sampling)
        token = jnp.where(loop.done, limits.pad, impose(drawn, limits.forced, loop.step))
        odds = jnp.take_along_axis(jax.nn.log_softmax(logits), token[:, None], 1)[:, 0]
        tokens = loop.tokens.at[:, loop.step].set(token)
        log_probs = loop.log_probs.at[:, loop.step].set(jnp.where(loop.done, 0, odds))
        reading, hidden = model.read(loop.reading, token)
        done = loop.done | limits.stops[token]
        return _Loop(loop.step + 1, reading, hidden, token, carry, done, tokens, log_probs)

    last = jax.lax.while_loop(goes_on, turn, first)
    return Generated(last.tokens, row_lengths(last.tokens, limits), last.log_probs, last.carry)


def next_logits(
    model: Decoder | EncoderDecoder, hidden: jax.Array, token: jax.Array, limits: Limits,
    shift: Shift | None, arguments: Any, carry: Any,
) -> tuple[jax.Array, Any]:  # fmt: skip
    """Logits of the next token, with what the shift adds, and minus infinity for tokens that are not allowed. [B, V]"""
    logits = model.logits(hidden)
    if shift is not None:
        added, carry = shift(arguments, carry, token, hidden)
        logits = logits + added
    return jnp.where(limits.allowed, logits, NEVER), carry


def impose(drawn: jax.Array, forced: jax.Array, step: jax.Array) -> jax.Array:
    """The forced token of a step where there is one, and otherwise what was drawn. [B]"""
    if not forced.shape[1]:
        return drawn
    token = forced[:, jnp.minimum(step, forced.shape[1] - 1)]
    return jnp.where((token != FREE) & (step < forced.shape[1]), token, drawn)


def last_token(model: Decoder | EncoderDecoder, tokens: jax.Array, segments: jax.Array) -> jax.Array:
    """The token that was read last before anything is generated. [B]"""
    if model.config.is_encoder_decoder:
        return jnp.full(len(tokens), model.config.start, jnp.int32)
    last = segments.shape[1] - 1 - jnp.argmax(segments[:, ::-1] > 0, 1)
    return jnp.take_along_axis(tokens, last[:, None], 1)[:, 0].astype(jnp.int32)


def row_lengths(tokens: jax.Array, limits: Limits) -> jax.Array:
    """Tokens up to and including the first that ends a row. [B, T] -> [B]"""
    ends = limits.stops[tokens]
    return jnp.where(ends.any(1), ends.argmax(1) + 1, tokens.shape[1])
