"""The networks on top of the language model: heads for V and Q, and a condition on the return, as plain dictionaries.

A head is Linear(d, 2d), ReLU, Linear(2d, outputs) on the trunk's last hidden states, as in the code of ILQL. Its last
layer is initialised near zero with a bias near the mean return, which speeds up learning (LMRL-Gym).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from motif_jax.offline.recipes import Recipe

Params = Any


class ModelFunctions(NamedTuple):
    """A language model, as functions of its parameters."""

    # (parameters, tokens [B, T], segments [B, T], addition to the embeddings: [B, T, width] or None) -> hidden
    # states [B, T, width]. Tokens attend to earlier tokens of their segment; segment 0 is padding.
    hidden: Callable[[Params, jax.Array, jax.Array, jax.Array | None], jax.Array]
    logits: Callable[[Params, jax.Array], jax.Array]  # (parameters, hidden [..., width]) -> [..., vocabulary] float32
    width: int
    vocabulary: int


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


def new_condition(width: int) -> dict[str, jax.Array]:
    """Initialises the condition on the return, see `condition`."""
    return {"kernel": jnp.zeros(width), "bias": jnp.zeros(width)}


def condition(params: dict[str, jax.Array], returns: jax.Array, first: jax.Array) -> jax.Array:
    """Returns the addition to the embeddings that tells a policy the return. [B, T, width]

    `returns`: of each position's episode, [B, T]. `first`: whether it is the first of its episode, [B, T] bool.
    """
    added = returns[..., None] * params["kernel"] + params["bias"]
    return jnp.where(first[..., None], added, 0.0)


def least(qs: list[jax.Array]) -> jax.Array:
    """Returns the smaller of two Q, or the only one."""
    return qs[0] if len(qs) == 1 else jnp.minimum(*qs)
