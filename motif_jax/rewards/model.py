"""A reward model as pure functions of its parameters, compiled to compute the rewards of captions or moments.

A model may have several heads: they share the encoder and differ in their last layers, so that their disagreement shows
where there is little data. Every head is defined up to a constant, so training shifts each to the same zero (`centre`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from motif_jax.config.table import LARGEST
from motif_jax.devices.parameters import name_of
from motif_jax.networks.reward import RewardModel
from motif_jax.rewards.heads import MOST_HEADS
from motif_jax.rewards.preference import Apply

CHUNK = 1024  # captions valued at a time
OWN_LAYERS = ("first", "second", "head")  # layers of RewardModel that every head has for itself
Value = Callable[..., jax.Array]


def make_reward_model(options: Mapping[str, Any], seed: int) -> tuple[Apply, Any]:
    """Returns the model as a function of parameters and moments, and its initial parameters.

    `options`: arguments of RewardModel; with several heads also `heads`, and `caution` (`heads.combine`).
    """
    heads, caution = int(options.get("heads", 1)), float(options.get("caution", 0.0))
    if not (1 <= heads <= MOST_HEADS and 0 <= caution <= LARGEST):
        raise ValueError(f"a reward has 1 to {MOST_HEADS} heads and a caution of at least 0, not {heads} and {caution}")
    options = {name: value for name, value in options.items() if name not in ("heads", "caution")}
    if heads > 1:
        return _make_heads(options, seed, heads)
    graph, params = nnx.split(RewardModel(**options, rngs=nnx.Rngs(seed)), nnx.Param)

    def apply(params: Any, moments: Mapping[str, jax.Array]) -> jax.Array:
        return nnx.merge(graph, params)(moments)

    return apply, params


def _make_heads(options: Mapping[str, Any], seed: int, heads: int) -> tuple[Apply, Any]:
    """A model with E heads: (parameters, moments) -> [E, K]; the first head starts as the model with one head does."""

    def start(key: int | jax.Array) -> Any:
        return nnx.split(RewardModel(**options, rngs=nnx.Rngs(key)), lambda path, _: path[0] in OWN_LAYERS, nnx.Param)

    graph, first, shared = start(seed)
    others = [start(jax.random.fold_in(jax.random.key(seed), head))[1] for head in range(1, heads)]

    def apply(params: Any, moments: Mapping[str, jax.Array]) -> jax.Array:
        return jax.vmap(lambda own: nnx.merge(graph, own, params["shared"])(moments))(params["heads"])

    return apply, {"shared": shared, "heads": jax.tree.map(lambda *leaves: jnp.stack(leaves), first, *others)}


def centre(params: Any, shift: np.ndarray) -> Any:
    """Subtracts a constant from each head's reward, which does not change its preferences. [E]"""

    def shifted(path: Any, leaf: jax.Array) -> jax.Array:
        return leaf - shift[:, None].astype(np.float32) if name_of(path)[-2:] == ("head", "bias") else leaf

    return jax.tree_util.tree_map_with_path(shifted, params)


def make_value(apply: Apply) -> Value:
    """Compiles the model: (parameters, texts [U, W], caption numbers [K], other inputs by name) -> [K] or [E, K]."""
    return jax.jit(lambda params, table, ids, more: apply(params, more | {"message": table[ids]}))


def value_captions(value: Value, params: Any, table: jax.Array) -> np.ndarray:
    """The raw reward of every caption. [U, W] -> [U]; with several heads [E, U]"""
    count = table.shape[0]
    chunk = min(CHUNK, count)
    ids = np.arange(count + -count % chunk).reshape(-1, chunk) % count
    return np.concatenate([np.asarray(value(params, table, part, {})) for part in ids], -1)[..., :count]
