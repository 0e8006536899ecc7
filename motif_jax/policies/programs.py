"""Programs that write with a model, as pure functions of its parameters and of the numbers of a decoding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from motif_jax.language.config import LanguageConfig
from motif_jax.language.generation import FREE, TokenLimits, TokenSampling, generate, search
from motif_jax.language.model import Decoder, PrefixState, repeat_rows
from motif_jax.offline import mdp
from motif_jax.offline.losses import Replies
from motif_jax.offline.values import (
    ModelFunctions,
    ShiftArguments,
    advantages,
    begin_shift,
    condition,
    make_shift,
    value_of_texts,
)
from motif_jax.policies.values import ValueModel
from motif_jax.transcripts.render import Rows


class DecodingNumbers(NamedTuple):
    """The numbers of a decoding; they are arguments of the program, so changing them compiles nothing."""

    sampling: TokenSampling
    logits: jax.Array  # factor of the policy's logits: 1, or 0 to decode without them
    beta: jax.Array
    clip: jax.Array
    rerank_values: jax.Array
    rerank_log_prob: jax.Array
    wanted_return: jax.Array  # divided by the scale of rewards


class Written(NamedTuple):
    """The generated texts, one per context."""

    tokens: jax.Array  # with the end mark if it was generated; arbitrary after `lengths`. [B, N]
    lengths: jax.Array  # [B]
    log_prob: jax.Array  # of the whole text, shift included. [B]
    log_probs: jax.Array  # of each token. [B, N]


def make_program(model: ValueModel, kind: str, count: int, length: int, clipped: bool) -> Any:
    """Makes a function to compile: (policy, target, online, tokens, segments, key, drawn, numbers) -> `Written`.

    The model gives only the structure; parameters are arguments of the function. `kind`: sample, beam or rerank, with
    `count` beams or candidates. A text of fewer than `length` tokens ends where the model's context is full. If `drawn`
    has more rows than there are contexts, each context is read once, and continued by as many neighbours.
    """
    language = as_functions(model.graph, model.config)
    shift = make_shift(language, clipped) if model.recipe.per_token else None
    allowed, bounds = jnp.asarray(model.allowed), model.bounds

    def program(
        policy: Any, target: Any, online: Any, tokens: jax.Array, segments: jax.Array, key: jax.Array,
        drawn: jax.Array, numbers: DecodingNumbers,
    ) -> Written:  # fmt: skip
        decoder = nnx.merge(model.graph, policy)
        writer: Any = Writer(decoder, numbers.logits, online.get("condition"), numbers.wanted_return)
        if model.recipe.of_replies:
            target = target | {"trunk": policy}  # Q reads the policy's hidden states
        shifting = ShiftArguments(numbers.beta, numbers.clip, target, online, bounds)
        contexts, keys, repeats = (tokens, segments), _keys(key, drawn), len(drawn) // len(tokens)
        if kind == "rerank":
            keys, repeats = jax.vmap(_keys, (0, None))(keys, jnp.arange(count)).reshape(-1), repeats * count
        rows: tuple[jax.Array, jax.Array] = repeat_rows(contexts, repeats)
        limits, left, ended = limit(model.config, rows[1], allowed, model.renderer.stop, length)
        memory: Any = begin_shift(language, shifting, *contexts, length, clipped) if shift else ()
        inputs: dict[str, Any] = {"shift": shift, "arguments": shifting, "carry": repeat_rows(memory, repeats)}
        if kind == "beam":
            generated = search(writer, *rows, count, limits, length, **inputs)
        else:
            generated = generate(writer, *contexts, keys, numbers.sampling, limits, length, **inputs, repeats=repeats)
        lengths = jnp.minimum(generated.lengths, left)  # without a forced end mark
        log_probs = jnp.where(ended, 0.0, generated.log_probs)
        written = Written(generated.tokens, lengths, log_probs.sum(1), log_probs)
        if kind != "rerank":
            return written
        value = value_of_texts(language, model.recipe, shifting, *rows, generated.tokens, lengths)
        rank = numbers.rerank_values * value + numbers.rerank_log_prob * written.log_prob
        best = jnp.arange(len(drawn)) * count + rank.reshape(-1, count).argmax(1)
        return Written(*(array[best] for array in written))

    return program


def limit(
    config: LanguageConfig, segments: jax.Array, allowed: jax.Array, stop: int, length: int
) -> tuple[TokenLimits, jax.Array, jax.Array]:
    """The limits of texts after contexts, their longest lengths [B], and where a full context has ended them [B, N].

    There the end mark is forced. Only the comparison of beams counts its log-probability.
    """
    left = jnp.full(len(segments), length)
    if config.max_positions:
        left = jnp.minimum(left, config.max_positions - (segments > 0).sum(1))
    ended = jnp.arange(length) >= left[:, None]
    stops = jnp.zeros(len(allowed), bool).at[stop].set(True)
    return TokenLimits(allowed, stops, jnp.where(ended, stop, FREE)), left, ended


def _keys(key: jax.Array, numbers: jax.Array) -> jax.Array:
    """One key per number. [N]"""
    return jax.vmap(jax.random.fold_in, (None, 0))(key, numbers)


def make_probabilities(model: ValueModel) -> Any:
    """The function of `ValueWriter.probabilities`: (..., tokens [1, T], segments, numbers) -> three arrays [T, V]."""
    language, allowed = as_functions(model.graph, model.config), jnp.asarray(model.allowed)

    def probabilities(
        policy: Any, target: Any, online: Any, tokens: jax.Array, segments: jax.Array, numbers: DecodingNumbers
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        writer, added = nnx.merge(model.graph, policy), None
        if model.recipe.conditioned:
            first = jnp.arange(tokens.shape[1])[None] == 0
            added = condition(online["condition"], jnp.broadcast_to(numbers.wanted_return, tokens.shape), first)
        logits = writer.logits(writer(tokens, segments, added))[0]
        shift = advantage = jnp.zeros_like(logits)
        if model.recipe.per_token:
            shifting = ShiftArguments(numbers.beta, numbers.clip, target, online, model.bounds)
            advantage = advantages(language, shifting, tokens, segments)[0]
            shift = jnp.minimum(numbers.beta * advantage, numbers.clip)
        policy_odds, shifted_odds = (
            jax.nn.softmax(jnp.where(allowed, array, -jnp.inf), -1)
            for array in (logits, numbers.logits * logits + shift)
        )
        return policy_odds, shifted_odds, advantage

    return probabilities


def _spread(reading: PrefixState) -> PrefixState:
    """Gives the index of the next slot, which all rows share, an axis of rows."""
    return reading._replace(at=jnp.broadcast_to(reading.at, len(reading.seen)))


def as_functions(graph: Any, config: LanguageConfig) -> ModelFunctions:
    """A decoder as functions of its parameters."""

    def hidden(params: Any, tokens: jax.Array, segments: jax.Array, added: jax.Array | None) -> jax.Array:
        return nnx.merge(graph, params)(tokens, segments, added)

    def logits(params: Any, hidden: jax.Array) -> jax.Array:
        return nnx.merge(graph, params).logits(hidden)

    def begin(params: Any, tokens: jax.Array, segments: jax.Array, room: int) -> Any:
        return _spread(nnx.merge(graph, params).begin(tokens, segments, room)[0])

    def read(params: Any, memory: Any, token: jax.Array) -> tuple[Any, jax.Array]:
        reading, hidden = nnx.merge(graph, params).read(memory._replace(at=memory.at[0]), token)
        return _spread(reading), hidden

    return ModelFunctions(hidden, logits, config.width, config.vocabulary, begin, read)


class Writer:
    """A decoder whose logits are multiplied by a factor before the shift is added.

    It may be conditioned on the episode's return at the first token (the recipe decision_transformer).
    """

    def __init__(self, decoder: Decoder, factor: jax.Array, params: Any, wanted: jax.Array):
        """With a factor of 0 only the shift decides. `params`: of `offline.values.condition`, or None."""
        self._decoder, self._factor, self._params, self._wanted = decoder, factor, params, wanted
        self.config, self.read = decoder.config, decoder.read

    def logits(self, hidden: jax.Array) -> jax.Array:
        return self._factor * self._decoder.logits(hidden)

    def begin(self, tokens: jax.Array, segments: jax.Array, room: int) -> tuple[PrefixState, jax.Array]:
        if self._params is None:
            return self._decoder.begin(tokens, segments, room)
        first = jnp.arange(tokens.shape[1])[None] == jnp.argmax(segments > 0, 1)[:, None]
        added = condition(self._params, jnp.broadcast_to(self._wanted, tokens.shape), first)
        return self._decoder.begin(tokens, segments, room, added)


def make_replies(
    graph: Any, allowed: jax.Array, stop: int, count: int, length: int, max_texts: int
) -> Callable[[Any, Rows, jax.Array], Replies]:
    """The function that samples replies, to be compiled: (the policy's parameters, rows, keys [B]) -> `Replies`.

    Each of the agent's first `max_texts` texts of a row gets `count` replies and random features. A reply has at most
    `length` of the `allowed` tokens, [V] bool; it ends with `stop`, or where the model's context is full.
    """

    def sample(params: Any, rows: Rows, keys: jax.Array) -> Replies:
        policy = nnx.merge(graph, params)
        num_rows, width = rows.tokens.shape
        starts = jnp.where(mdp.utterance_starts(rows), jnp.arange(width), width)
        start = jnp.sort(starts, 1)[:, :max_texts]  # [B, K]; `width` where there are fewer texts
        start = jnp.pad(start, ((0, 0), (0, max(max_texts - width, 0))), constant_values=width)
        segment = jnp.take_along_axis(rows.segments, jnp.minimum(start, width - 1), 1)
        before = (rows.segments[:, None] == segment[..., None]) & (jnp.arange(width) <= start[..., None])  # [B, K, T]
        contexts = jnp.repeat(rows.tokens, max_texts, 0), before.reshape(-1, width).astype(jnp.int32)  # [B * K, T]
        tokens, segments = repeat_rows(contexts, count)  # [B * K * n, T]
        each = jax.vmap(lambda key: jax.random.split(key, max_texts * count))(keys).reshape(-1)
        limits, _, ended = limit(policy.config, segments, allowed, stop, length)
        generated = generate(policy, *contexts, each, TokenSampling(), limits, length, repeats=count)
        log_probs = jnp.where(ended, 0.0, generated.log_probs).sum(1)

        # ---- features: one pass over the context and the reply, without a forced end mark
        valid = (jnp.arange(length) < generated.lengths[:, None]) & ~ended
        read = jnp.concatenate([segments, valid.astype(jnp.int32)], 1)
        hidden = policy(jnp.concatenate([tokens, generated.tokens], 1), read).astype(jnp.float32)
        feature = jnp.where(read[..., None] > 0, hidden, 0.0).sum(1) / jnp.maximum(read.sum(1), 1)[:, None]
        shape = num_rows, max_texts, count
        random = jax.vmap(lambda key: jax.random.uniform(jax.random.fold_in(key, 1), (*shape[1:], hidden.shape[-1]),
                                                         minval=-1.0))(keys)  # fmt: skip
        return Replies(feature.reshape(*shape, -1), log_probs.reshape(shape), random)

    return sample
