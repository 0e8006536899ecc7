"""Networks for novelty: fixed features of any observations, and a small network on top of them.

Features are not trained: trigrams of texts are counted, cells of maps get fixed random vectors, numbers are unchanged.
The caller normalises them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.networks.images import elu
from motif_jax.networks.presets import Layers, scale, trigrams
from motif_jax.structs import ArraySpec

PLACES = 256  # buckets of hashed trigrams
CELLS, CELL_SIZE = 256, 4  # kinds of cells (further kinds share their vectors), and numbers per cell


def size_of(name: str, spec: ArraySpec) -> int:
    """Returns the number of features of an observation."""
    if is_text(spec):
        return PLACES
    return math.prod(spec.shape) * (CELL_SIZE if is_picture(spec) else 1)


def is_text(spec: ArraySpec) -> bool:
    """Whether an observation is a text."""
    return spec.kind in ("", "text") and spec.dtype == "uint8" and len(spec.shape) == 1


def is_picture(spec: ArraySpec) -> bool:
    """Whether an observation is a map of kinds of cells."""
    return spec.kind != "vector" and np.dtype(spec.dtype).kind in "iu" and len(spec.shape) > 1


def random_cells(key: jax.Array) -> jax.Array:
    """Draws a vector for each kind of cell. [CELLS, CELL_SIZE]"""
    return jax.random.normal(key, (CELLS, CELL_SIZE))


def features(specs: Mapping[str, ArraySpec], cells: jax.Array, observations: Mapping[str, jax.Array]) -> jax.Array:
    """Returns the features of N observations, concatenated in the order of `specs`. [N, D] float32"""
    parts = []
    for name, spec in specs.items():
        array = observations[name]
        if is_text(spec):
            part = trigrams(array, PLACES)
        elif is_picture(spec):
            part = cells[array.astype(jnp.int32) % CELLS]
        else:
            part = scale(array) if name == "blstats" else array.astype(jnp.float32)
        parts.append(part.reshape(len(array), -1))
    return jnp.concatenate(parts, -1)


class NoveltyNetwork(Layers):
    """A multilayer perceptron with ELU after each layer except the last, and orthogonal weights of gain sqrt(2)."""

    GAIN = math.sqrt(2)

    def __call__(self, x: jax.Array) -> jax.Array:
        """[N, sizes[0]] -> [N, sizes[-1]]"""
        *hidden, last = self.linears
        for linear in hidden:
            x = elu(linear(x))
        return last(x)
