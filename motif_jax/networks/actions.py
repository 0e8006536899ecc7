"""The outputs of a network for actions of several choices or numbers (envs/world.py).

Each number x between `low` and `high` is a squashed Gaussian: x = low + (high - low) (1 + tanh u) / 2 with
u ~ N(mean, scale). The network puts out all means, then what the logarithms of the scales are computed from.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from motif_jax.envs.world import ActionSpace

LARGEST = 7.0  # |u|: closer to its bounds, a float32 does not tell one number from the next
# Bounds of means and of logarithms of scales. Without bounds, means drift past LARGEST where a bound is the best
# number; recorded numbers are then far from the mean, and their density changes a millionfold with small changes.
MEAN, LOG_SCALE = 3.0, 3.0


class Gaussian(NamedTuple):
    """The distribution of u. [..., D] each"""

    mean: jax.Array
    log_scale: jax.Array


def gaussian(outputs: jax.Array) -> Gaussian:
    """[..., 2 D] -> [..., D] each"""
    mean, log_scale = jnp.split(outputs, 2, -1)
    # Smooth bounds, so that gradients are never 0.
    return Gaussian(MEAN * jnp.tanh(mean / MEAN), LOG_SCALE * jnp.tanh(log_scale / LOG_SCALE))


def split(space: ActionSpace, logits: jax.Array) -> list[jax.Array]:
    """The logits of each choice. [..., sum of sizes]"""
    return jnp.split(logits, list(itertools.accumulate(space.sizes))[:-1], -1)


def squash(space: ActionSpace, u: jax.Array) -> jax.Array:
    """Numbers within their bounds. [..., D]"""
    low, high = jnp.array(space.low), jnp.array(space.high)
    return jnp.clip(low + (high - low) * (1 + jnp.tanh(u)) / 2, low, high)


def unsquash(space: ActionSpace, action: jax.Array) -> jax.Array:
    """The u of recorded numbers. [..., D]"""
    low, high = jnp.array(space.low), jnp.array(space.high)
    inside = jnp.clip(2 * (action - low) / (high - low) - 1, -1, 1)
    return jnp.clip(jnp.arctanh(inside), -LARGEST, LARGEST)  # arctanh(1) is infinite


def draw(space: ActionSpace | None, key: jax.Array, outputs: jax.Array, greedy: bool) -> jax.Array:
    """Draws an action from the outputs, or takes the most probable choices and the means. [..., outputs]

    `space`: None for one choice among the outputs.
    """
    if space is None:
        return (outputs.argmax(-1) if greedy else jax.random.categorical(key, outputs)).astype(jnp.int32)
    if space.sizes:
        parts = enumerate(split(space, outputs))
        return jnp.stack([draw(None, jax.random.fold_in(key, number), part, greedy) for number, part in parts], -1)
    mean, log_scale = gaussian(outputs)
    u = mean if greedy else mean + jnp.exp(log_scale) * jax.random.normal(key, mean.shape)
    return squash(space, u)
