"""Decoding with values: logits + min(beta (Q - V), clip), token by token; and values of whole texts for ranking.

Q is the smaller one of the targets, V the online network's, as in the code of ILQL (arXiv 2206.11871, section 4). V is
the same for all tokens: without a clip it does not change probabilities, so its network is not evaluated.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from motif_jax.offline.losses import taken
from motif_jax.offline.recipes import Recipe
from motif_jax.offline.values import ModelFunctions, Params, apply_head, least


class Reader(NamedTuple):
    """A language model that reads token by token. Its memory is a tree of arrays [B, ...]."""

    begin: Callable[[Params, jax.Array, jax.Array, int], Any]  # (parameters, tokens, segments, room) -> memory
    read: Callable[[Params, Any, jax.Array], tuple[Any, jax.Array]]  # (.., memory, token) -> memory, hidden [B, width]


class ShiftArguments(NamedTuple):
    """Arguments of a shift; only a change of the bounds compiles a new program."""

    beta: jax.Array
    clip: jax.Array
    target: Params  # "trunk", "q"
    online: Params  # "trunk", "v"
    bounds: tuple[float, float] = (-math.inf, math.inf)  # of the targets' Q, as in training; compile-time constants


def begin_shift(
    reader: Reader, shifting: ShiftArguments, tokens: jax.Array, segments: jax.Array, room: int, clipped: bool
) -> dict[str, Any]:
    """Returns the shift's memory of contexts [B, L], without their last tokens."""
    before = segments.at[jnp.arange(len(segments)), last_index(segments)].set(0)
    memory = {"target": reader.begin(shifting.target["trunk"], tokens, before, room)}
    if clipped:
        memory["online"] = reader.begin(shifting.online["trunk"], tokens, before, room)
    return memory


def make_shift(reader: Reader, clipped: bool) -> Callable[..., tuple[jax.Array, Any]]:
    """Makes a `language.generation.Shift` with `ShiftArguments`.

    `clipped`: whether `ShiftArguments.clip` is finite; V is needed only then.
    """

    def shift(shifting: ShiftArguments, memory: Any, token: jax.Array, _: jax.Array) -> tuple[jax.Array, Any]:
        target, hidden = reader.read(shifting.target["trunk"], memory["target"], token)
        q = target_q(shifting, hidden)  # [B, V]
        if not clipped:
            return shifting.beta * q, {"target": target}
        online, hidden = reader.read(shifting.online["trunk"], memory["online"], token)
        advantage = q - apply_head(shifting.online["v"], hidden)
        return jnp.minimum(shifting.beta * advantage, shifting.clip), {"target": target, "online": online}

    return shift


def target_q(values: ShiftArguments, hidden: jax.Array) -> jax.Array:
    """Computes the smaller Q of the targets, clipped to its bounds. [..., width] -> [..., outputs]"""
    q = least([apply_head(head, hidden) for head in values.target["q"]])
    return q if values.bounds == (-math.inf, math.inf) else jnp.clip(q, *values.bounds)


def advantages(language: ModelFunctions, values: ShiftArguments, tokens: jax.Array, segments: jax.Array) -> jax.Array:
    """Computes Q - V of every token after every position of whole texts. [B, T] -> [B, T, V]"""
    q = target_q(values, language.hidden(values.target["trunk"], tokens, segments, None))
    return q - apply_head(values.online["v"], language.hidden(values.online["trunk"], tokens, segments, None))


def value_of_texts(
    language: ModelFunctions, recipe: Recipe, values: ShiftArguments, tokens: jax.Array, segments: jax.Array,
    candidates: jax.Array, lengths: jax.Array,
) -> jax.Array:  # fmt: skip
    """Computes values of candidate texts: the sum of Q - V over their tokens, or the Q of the text; 0 without values.

    `tokens`, `segments`: the contexts. [B, L]. `candidates`: with their end marks. [B, N]. `lengths`: of these. [B]
    """
    valid = jnp.arange(candidates.shape[1]) < lengths[:, None]
    texts = jnp.concatenate([tokens, candidates], 1)
    text_segments = jnp.concatenate([segments, valid.astype(segments.dtype)], 1)
    rows, width = jnp.arange(len(tokens)), tokens.shape[1]
    if not recipe.has_values:
        return jnp.zeros(len(tokens))
    hidden = language.hidden(values.target["trunk"], texts, text_segments, None)
    if recipe.per_utterance:
        return target_q(values, hidden[rows, width + jnp.maximum(lengths - 1, 0)])[..., 0]
    if recipe.of_replies:  # the trunk is the policy itself
        features = jnp.where(text_segments[..., None] > 0, hidden.astype(jnp.float32), 0.0)
        mean = features.sum(1) / (text_segments > 0).sum(1)[:, None]
        return least([apply_head(head, mean)[..., 0] for head in values.target["q"]])

    def before_each(hidden: jax.Array) -> jax.Array:
        """Selects the hidden states before each token of the candidates. [B, N, width]"""
        return jnp.concatenate([hidden[rows, last_index(segments)][:, None], hidden[:, width:-1]], 1)

    q = taken(target_q(values, before_each(hidden)), candidates)
    online = language.hidden(values.online["trunk"], texts, text_segments, None)
    v = apply_head(values.online["v"], before_each(online))[..., 0]
    return jnp.where(valid, q - v, 0.0).sum(1)


def last_index(segments: jax.Array) -> jax.Array:
    """Returns the position of the last token before the padding. [B, L] -> [B]"""
    return segments.shape[1] - 1 - jnp.argmax(segments[:, ::-1] > 0, 1)
