"""Generation of text: one compiled loop that reads a token and chooses the next one, until all rows have ended.

Keys and values are in a cache of fixed size, so no shape depends on the text so far. One program serves every
temperature, top-k, top-p, set of allowed tokens and forced token. Rows end at different times: when three quarters of
them have ended, the others continue as a smaller batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from motif_jax.language.model import Decoder, EncoderDecoder, PrefixState, repeat_rows, take_last, take_rows

NEVER = -jnp.inf
FEW = 256  # tokens sorted when each row draws from its top FEW or fewer
PACK_ROWS, PACK_LENGTH = 32, 16  # fewer rows, or shorter texts, are not worth compiling a second loop


class TokenSampling(NamedTuple):
    """The values of sampling: each is one number, or one per row [B]."""

    temperature: jax.Array | float = 1.0  # 0: the most probable token
    top_k: jax.Array | int = 0  # only the k most probable tokens; 0: all
    top_p: jax.Array | float = 1.0  # only the most probable tokens whose total probability reaches this; 1: all


def draw(logits: jax.Array, keys: jax.Array, sampling: TokenSampling) -> jax.Array:
    """Draws one token per row. [B]

    `logits`: [B, V]; minus infinity for tokens that may not be drawn. `keys`: one per row [B], so a row's token does
    not depend on the other rows. The temperature is applied first, then top-k, then top-p, as in transformers.
    """
    temperature, top_k, top_p = (jnp.broadcast_to(value, logits.shape[:1])[:, None] for value in sampling)
    scaled = logits / jnp.where(temperature > 0, temperature, 1)
    kept = jax.lax.cond(((top_k > 0) | (top_p < 1)).any(), lambda: _keep_probable(scaled, top_k, top_p), lambda: scaled)
    drawn = jax.vmap(jax.random.categorical)(keys, kept)
    return jnp.where(temperature[:, 0] > 0, drawn, logits.argmax(-1))


def draw_allowed(logits: Any, allowed: Any, keys: jax.Array, step: Any, sampling: TokenSampling) -> jax.Array:
    """The same at a step of a text, among the allowed tokens. [B, V] bool"""
    return draw(jnp.where(allowed, logits, NEVER), keys_of(keys, step), sampling)


def as_arrays(sampling: TokenSampling) -> TokenSampling:
    """Arrays of fixed types, for which other values do not compile another program."""
    return TokenSampling(*map(jnp.asarray, sampling, (jnp.float32, jnp.int32, jnp.float32)))


def _keep_probable(logits: jax.Array, top_k: jax.Array, top_p: jax.Array) -> jax.Array:
    """Excludes logits below the k-th largest, then tokens beyond the cumulative probability `top_p`."""

    def keep(count: int) -> jax.Array:
        ranked, order = jax.lax.top_k(logits, count)  # among equal logits the first one comes first
        rank = jnp.arange(count)
        ranked = jnp.where((top_k > 0) & (rank >= top_k), NEVER, ranked)
        odds = jax.nn.softmax(ranked, -1)
        before = jnp.cumsum(odds, -1) - odds  # total probability of the more probable tokens
        ranked = jnp.where((before >= top_p) & (rank > 0), NEVER, ranked)
        return jnp.put_along_axis(jnp.full_like(logits, NEVER), order, ranked, -1, inplace=False)

    every = logits.shape[-1]
    if every <= FEW:
        return keep(every)
    # Sorting a vocabulary costs more than a small model's forward pass.
    return jax.lax.cond(((top_k > 0) & (top_k <= FEW)).all(), lambda: keep(FEW), lambda: keep(every))


# (arguments, carry, token [B], hidden [B, width]) -> (addition to the logits [B, V], carry). `arguments` are constant
# over steps: weights, factors. `carry` is the state of each row, such as the cache of another model, with the rows on
# axis 0 of its arrays. `token` was just read; `hidden` is the language model's hidden state for it. B is the number of
# rows that continue.
Shift = Callable[[Any, Any, jax.Array, jax.Array], tuple[jax.Array, Any]]
FREE = -1  # in place of a forced token: the model chooses


class TokenLimits(NamedTuple):
    """Restrictions on the generated tokens."""

    allowed: jax.Array  # [V] or [B, V] bool
    stops: jax.Array  # tokens that end a row. [V] bool
    forced: jax.Array  # tokens that replace the model's choice, FREE elsewhere. [B, up to `length`]
    pad: jax.Array | int = 0  # fills rows after their end


class Generated(NamedTuple):
    """Continuations of B contexts."""

    tokens: jax.Array  # up to and including the token that ended a row, then padding. [B, length]
    lengths: jax.Array  # tokens before the padding. [B]
    log_probs: jax.Array  # of each token among the allowed ones, shift included, at temperature 1. [B, length]


class _Loop(NamedTuple):
    """The state of a loop with N rows, or with W beams of each of B contexts: row b * W + w is beam w of context b."""

    step: jax.Array
    reading: PrefixState
    hidden: jax.Array  # [N, width]
    token: jax.Array  # read last. [N]
    carry: Any
    done: jax.Array  # [N] or [B, W]
    tokens: jax.Array  # [N, length] or [B, W, length]
    log_probs: jax.Array  # one per token, like these
    lengths: Any = ()  # of beams. [B, W]


def no_limits(vocabulary: int, num_rows: int, ends: tuple[int, ...] = ()) -> TokenLimits:
    """All tokens are allowed; rows end with the tokens `ends`."""
    stops = jnp.zeros(vocabulary, bool).at[jnp.array(ends, int)].set(True)
    return TokenLimits(jnp.ones(vocabulary, bool), stops, jnp.zeros((num_rows, 0), jnp.int32))


def generate(
    model: Decoder | EncoderDecoder, tokens: jax.Array, segments: jax.Array, keys: jax.Array, sampling: TokenSampling,
    limits: TokenLimits, length: int, shift: Shift | None = None, arguments: Any = (), carry: Any = (),
    repeats: int = 1,
) -> Generated:  # fmt: skip
    """Continues contexts.

    Args:
      tokens, segments: contexts of one segment each; see `model.py`. [B / repeats, L]
      keys: random keys, one per row. [B]
      shift: adds to the logits, see `Shift`.
      arguments, carry: inputs of the shift. Its carry has read the context except for the last token.
      repeats: number of neighbouring rows that continue the same context, which is read once.
    """
    reading, hidden = model.begin(tokens, segments, length)
    hidden, token = repeat_rows((hidden, last_token(model, tokens, segments)), repeats)
    num_rows = len(token)
    first = _Loop(
        jnp.int32(0), repeat_rows(reading, repeats), hidden, token, carry, jnp.zeros(num_rows, bool),
        jnp.full((num_rows, length), limits.pad, jnp.int32), jnp.zeros((num_rows, length)),
    )  # fmt: skip
    of_rows = TokenSampling(*(jnp.broadcast_to(value, num_rows) for value in sampling))
    allowed = jnp.broadcast_to(limits.allowed, (num_rows, model.config.vocabulary))

    def run(loop: _Loop, settings: tuple[Any, ...], most: int) -> _Loop:
        """Continues until at most `most` rows have not ended; `settings` of each row are the same at every step."""
        keys, sampling, allowed, forced = settings

        def is_running(loop: _Loop) -> jax.Array:
            return (loop.step < length) & ((~loop.done).sum() > most)

        def step(loop: _Loop) -> _Loop:
            logits, carry = next_logits(model, loop.hidden, loop.token, allowed, shift, arguments, loop.carry)
            drawn = draw(logits, keys_of(keys, loop.step), sampling)
            if forced.shape[1]:
                imposed = forced[:, jnp.minimum(loop.step, forced.shape[1] - 1)]
                drawn = jnp.where((imposed != FREE) & (loop.step < forced.shape[1]), imposed, drawn)
            token = jnp.where(loop.done, limits.pad, drawn)
            odds = jnp.take_along_axis(jax.nn.log_softmax(logits), token[:, None], 1)[:, 0]
            tokens = loop.tokens.at[:, loop.step].set(token)
            log_probs = loop.log_probs.at[:, loop.step].set(jnp.where(loop.done, 0, odds))
            reading, hidden = model.read(loop.reading, token)
            done = loop.done | limits.stops[token]
            return _Loop(loop.step + 1, reading, hidden, token, carry, done, tokens, log_probs)

        return jax.lax.while_loop(is_running, step, loop)

    rows = keys, of_rows, allowed, limits.forced
    few = num_rows // 4 if num_rows >= PACK_ROWS and length >= PACK_LENGTH else 0
    last = run(first, rows, few)
    tokens, log_probs = last.tokens, last.log_probs
    if few:
        index = jnp.argsort(last.done, stable=True)[:few]
        rest = run(take_rows(last, index), take_rows(rows, index), 0)
        tokens, log_probs = tokens.at[index].set(rest.tokens), log_probs.at[index].set(rest.log_probs)
    return Generated(tokens, row_lengths(tokens, limits), log_probs)


def keys_of(keys: jax.Array, step: jax.Array | int) -> jax.Array:
    """The random keys of a step. [B]"""
    return jax.vmap(jax.random.fold_in, (0, None))(keys, step)


def next_logits(
    model: Decoder | EncoderDecoder, hidden: jax.Array, token: jax.Array, allowed: jax.Array,
    shift: Shift | None, arguments: Any, carry: Any,
) -> tuple[jax.Array, Any]:  # fmt: skip
    """Logits of the next token, shift included; minus infinity where tokens are not allowed. [B, V]"""
    logits = model.logits(hidden)
    if shift is not None:
        added, carry = shift(arguments, carry, token, hidden)
        logits = logits + added
    return jnp.where(allowed, logits, NEVER), carry


def last_token(model: Decoder | EncoderDecoder, tokens: jax.Array, segments: jax.Array) -> jax.Array:
    """The last token that the model read before generation. [B]"""
    if model.config.is_encoder_decoder:
        return jnp.full(len(tokens), model.config.start, jnp.int32)
    return take_last(tokens[..., None], segments)[:, 0, 0].astype(jnp.int32)


def row_lengths(tokens: jax.Array, limits: TokenLimits) -> jax.Array:
    """Number of tokens up to the first one that ends a row, inclusive. [B, T] -> [B]"""
    ends = limits.stops[tokens]
    return jnp.where(ends.any(1), ends.argmax(1) + 1, tokens.shape[1])


# Beam search: keeps the W best partial continuations of each context and returns the best complete one.
#
# Beams are compared by log_prob / length ** length_penalty. A finished beam stays among the others unchanged.


def search(
    model: Decoder | EncoderDecoder, tokens: jax.Array, segments: jax.Array, num_beams: int, limits: TokenLimits,
    length: int, length_penalty: jax.Array | float = 0.0, shift: Shift | None = None, arguments: Any = (),
    carry: Any = (),
) -> Generated:  # fmt: skip
    """The best continuation of each context; for the arguments see `generate`.

    `num_beams`: W; 1 is greedy decoding. `length_penalty`: 0 compares sums of log-probabilities, 1 their means.
    """
    num_rows, width = len(tokens), num_beams
    vocabulary = model.config.vocabulary
    reading, hidden = model.begin(tokens, segments, length)
    spread = jnp.repeat(jnp.arange(num_rows), width)
    allowed = limits.allowed if limits.allowed.ndim == 1 else limits.allowed[spread]
    shape = num_rows, width
    starts: tuple[Any, Any, Any, Any] = reading, hidden, last_token(model, tokens, segments), carry
    starts = take_rows(starts, spread)
    first = _Loop(
        jnp.int32(0), *starts, jnp.zeros(shape, bool), jnp.full((*shape, length), limits.pad, jnp.int32),
        jnp.zeros((*shape, length)), jnp.zeros(shape, jnp.int32),
    )  # fmt: skip

    def is_running(now: _Loop) -> jax.Array:
        return (now.step < length) & ~now.done.all()

    def step(now: _Loop) -> _Loop:
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
        reading, hidden = model.read(take_rows(now.reading, rows), token.reshape(-1))
        return _Loop(
            now.step + 1, reading, hidden, token.reshape(-1), take_rows(carry, rows),
            pick(now.done) | limits.stops[token], pick(now.tokens).at[:, :, now.step].set(token),
            pick(now.log_probs).at[:, :, now.step].set(gain), pick(lengths),
        )  # fmt: skip

    last = jax.lax.while_loop(is_running, step, first)
    value = last.log_probs.sum(-1) / jnp.maximum(last.lengths, 1) ** length_penalty
    best = value.argmax(1)
    rows = jnp.arange(num_rows)
    tokens = last.tokens[rows, best]
    return Generated(tokens, row_lengths(tokens, limits), last.log_probs[rows, best])


def _possible(log_probs: jax.Array, now: _Loop, limits: TokenLimits) -> jax.Array:
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
