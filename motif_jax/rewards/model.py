"""A reward model as pure functions of its parameters, compiled to compute the rewards of captions or moments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from flax import nnx

from motif_jax.networks.reward import RewardModel
from motif_jax.rewards.preference import Apply

CHUNK = 1024  # captions valued at a time
Value = Callable[..., jax.Array]


def make_reward_model(options: Mapping[str, Any], seed: int) -> tuple[Apply, Any]:
    """Returns the model as a function of parameters and inputs, and its initial parameters.

    `options`: arguments of RewardModel.
    """
    graph, params = nnx.split(RewardModel(**options, rngs=nnx.Rngs(seed)), nnx.Param)

    def apply(params: Any, inputs: Mapping[str, jax.Array]) -> jax.Array:
        return nnx.merge(graph, params)(inputs)

    return apply, params


def make_value(apply: Apply) -> Value:
    """Compiles the model: (parameters, texts [U, W], caption numbers [K], other inputs by name) -> [K]."""
    return jax.jit(lambda params, table, ids, more: apply(params, more | {"message": table[ids]}))


def value_captions(value: Value, params: Any, table: jax.Array) -> np.ndarray:
    """The raw reward of every caption. [U, W] -> [U]"""
    count = table.shape[0]
    chunk = min(CHUNK, count)
    ids = np.arange(count + -count % chunk).reshape(-1, chunk) % count
    return np.concatenate([np.asarray(value(params, table, part, {})) for part in ids])[:count]


def in_chunks(compute: Callable[[np.ndarray], Any], count: int, most: int) -> np.ndarray:
    """Computes values of rows 0 to `count`, at most `most` at a time: row numbers [K] -> [K] numbers. [count] float32

    K is a power of two, so that few shapes are compiled; some rows are repeated for that.
    """
    values = np.empty(count, np.float32)
    for start in range(0, count, most):
        size = min(most, count - start)
        rows = start + np.arange(1 << (size - 1).bit_length()) % size
        values[start : start + size] = np.asarray(compute(rows))[:size]
    return values
