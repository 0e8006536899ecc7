"""The networks on top of the language model, and decoding with them.

A head for V or Q is Linear(d, 2d), ReLU, Linear(2d, outputs) on the trunk's last hidden states, as in the code of ILQL.
Its last layer is initialised near zero with a bias near the mean return, which speeds up learning (LMRL-Gym).

Decoding is logits + min(beta (Q - V), clip), token by token. Q is the smaller one of the targets, V the online
network's (arXiv 2206.11871, section 4). V is the same for all tokens: without a clip it does not change probabilities,
so its network is not evaluated.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp

from motif_jax.language.model import ModelFunctions
from motif_jax.offline.recipes import Recipe

Params = Any


def new_head(key: jax.Array, width: int, outputs: int, bias: float) -> dict[str, jax.Array]:
    """Initialises a head."""
    hidden_key, out_key = jax.random.split(key)
    limit = width**-0.5
    return {
        "hidden_kernel": jax.random.uniform(hidden_key, (width, 2 * width), minval=-limit, maxval=limit),
        "hidden_bias": jnp.zeros(2 * width),
        "out_kernel": 0.01 * jax.random.normal(out_key, (2 * width, outputs)),
        "out_bias": jnp.full(outputs, bias, jnp.float32),
    }


def apply_head(head: dict[str, jax.Array], hidden: jax.Array) -> jax.Array:
    """[..., width] -> [..., outputs] float32"""
    inner = jax.nn.relu(hidden.astype(jnp.float32) @ head["hidden_kernel"] + head["hidden_bias"])
    return inner @ head["out_kernel"] + head["out_bias"]


def new_values(key: jax.Array, language: ModelFunctions, recipe: Recipe, bias: float, double_q: bool) -> dict[str, Any]:
    """Initialises a recipe's heads: "v", and "q" with one head or two."""
    outputs = language.vocabulary if recipe.per_token else 1
    keys = jax.random.split(key, 3)
    heads: dict[str, Any] = {}
    if recipe.has_trunk:
        heads["v"] = new_head(keys[0], language.width, 1, bias)
    if recipe.has_values:
        heads["q"] = [new_head(keys[1 + index], language.width, outputs, bias) for index in range(1 + double_q)]
    return heads


def condition(params: dict[str, jax.Array], returns: jax.Array, first: jax.Array) -> jax.Array:
    """Returns the addition to the embeddings that tells a policy the return; zero at first. [B, T, width]

    `returns`: of each position's episode, [B, T]. `first`: whether it is the first of its episode, [B, T] bool.
    """
    added = returns[..., None] * params["kernel"] + params["bias"]
    return jnp.where(first[..., None], added, 0.0)


def least(qs: list[jax.Array]) -> jax.Array:
    """Returns the smaller of two Q, or the only one."""
    return qs[0] if len(qs) == 1 else jnp.minimum(*qs)


def taken(values: jax.Array, action: jax.Array) -> jax.Array:
    """Selects the value of one action. [..., A], [...] -> [...]"""
    chex.assert_equal_shape_prefix([values, action], action.ndim)
    return jnp.take_along_axis(values, action[..., None], -1)[..., 0]


# ---- decoding


class ShiftArguments(NamedTuple):
    """Arguments of a shift; only a change of the bounds compiles a new program."""

    beta: jax.Array
    clip: jax.Array
    target: Params  # "trunk", "q"
    online: Params  # "trunk", "v"
    bounds: tuple[float, float] = (-math.inf, math.inf)  # of the targets' Q, as in training; compile-time constants


def begin_shift(
    language: ModelFunctions, shifting: ShiftArguments, tokens: jax.Array, segments: jax.Array, room: int, clipped: bool
) -> dict[str, Any]:
    """Returns the shift's memory of contexts [B, L], without their last tokens."""
    before = segments.at[jnp.arange(len(segments)), last_index(segments)].set(0)
    trunks = {"target": shifting.target["trunk"]} | ({"online": shifting.online["trunk"]} if clipped else {})
    assert language.decoder
    return {name: language.decoder(trunk).begin(tokens, before, room)[0] for name, trunk in trunks.items()}


def make_shift(language: ModelFunctions, clipped: bool) -> Callable[..., tuple[jax.Array, Any]]:
    """Makes a `language.generation.Shift` with `ShiftArguments`.

    `clipped`: whether `ShiftArguments.clip` is finite; V is needed only then.
    """

    decoder = language.decoder
    assert decoder

    def shift(shifting: ShiftArguments, memory: Any, token: jax.Array, _: jax.Array) -> tuple[jax.Array, Any]:
        target, hidden = decoder(shifting.target["trunk"]).read(memory["target"], token)
        q = target_q(shifting, hidden)  # [B, V]
        if not clipped:
            return shifting.beta * q, {"target": target}
        online, hidden = decoder(shifting.online["trunk"]).read(memory["online"], token)
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
