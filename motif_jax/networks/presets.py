"""Encoders of NetHack policies: the observations of one step in, one vector of features out.

`PRESETS` has the networks. Their observations are also in kinds.py, for checks without JAX.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.typing import DTypeLike

from motif_jax.envs.nethack.observations import BLSTATS_SCALE, HIGH, LOW, OBSERVATIONS
from motif_jax.networks.images import ImageEncoder, elu, in_pieces
from motif_jax.networks.kinds import BEHAVIOUR
from motif_jax.networks.tiles import CHARACTERS
from motif_jax.structs import ArraySpec

MESSAGE = OBSERVATIONS["message"].shape[0]  # bytes
BYTE = 255
COLORS = 32  # from 16 on reversed
BLSTATS = OBSERVATIONS["blstats"].shape[0]
MOST_TEXT = 80  # characters of a message for the small network: a line of the terminal


def scale(blstats: jax.Array) -> jax.Array:
    """`envs.nethack.observations.scale_blstats` on the device. [..., 27] integers -> [..., 27] float32"""
    return jnp.clip(blstats.astype(jnp.float32) * jnp.asarray(BLSTATS_SCALE), LOW, HIGH)


class Layers(nnx.Module):
    """Linear layers with ELU after each; orthogonal weights and zero biases at the start."""

    GAIN = 1.0  # of the weights

    def __init__(self, *sizes: int, dtype: DTypeLike = jnp.float32, rngs: nnx.Rngs):
        """Initialises layers sizes[0] -> sizes[1] -> ..."""
        orthogonal = nnx.initializers.orthogonal(self.GAIN)
        self.linears = nnx.List(
            [nnx.Linear(a, b, kernel_init=orthogonal, dtype=dtype, rngs=rngs) for a, b in itertools.pairwise(sizes)]
        )

    def __call__(self, x: jax.Array) -> jax.Array:
        """[N, sizes[0]] -> [N, sizes[-1]]"""
        for linear in self.linears:
            x = elu(linear(x))
        return x


class BehaviourVector(nnx.Module):
    """The observation BEHAVIOUR as a vector, as large as the learnt vectors of cells, so that it is not drowned out."""

    def __init__(self, behaviours: int, features: int, *, rngs: nnx.Rngs):
        self.vectors = nnx.Param(jax.random.normal(rngs.params(), (behaviours, features)))

    def __call__(self, behaviour: jax.Array) -> jax.Array:
        """[N, behaviours] -> [N, features]"""
        return behaviour @ self.vectors[...]


class ReferenceEncoder(nnx.Module):
    """The published encoder: crop as a picture, bottom line encoded and raw, message bytes as numbers."""

    reads = ("crop", "blstats", "message")
    features = ImageEncoder.FEATURES + 128 + BLSTATS + 128

    def __init__(self, *, behaviours: int, for_cpu: bool, dtype: DTypeLike, rngs: nnx.Rngs):
        """Initialises the layers, which compute in `dtype`; `for_cpu` as in images.py. `behaviours` has no effect."""
        self.image = ImageEncoder(for_cpu=for_cpu, dtype=dtype, rngs=rngs)
        self.vector = Layers(BLSTATS, 128, 128, dtype=dtype, rngs=rngs)
        self.message = Layers(MESSAGE, 128, 128, dtype=dtype, rngs=rngs)
        self.dtype = dtype

    def prepare(self) -> jax.Array | None:
        """Computes the part of `__call__` that depends only on the parameters."""
        return self.image.table()

    def __call__(self, observations: Mapping[str, jax.Array], prepared: jax.Array | None = None) -> jax.Array:
        """Observations [N, ...] -> [N, 795]"""
        vector = scale(observations["blstats"]).astype(self.dtype)
        message = (observations["message"].astype(jnp.float32) / BYTE).astype(self.dtype)
        image = self.image(observations["crop"], prepared)
        return jnp.concatenate([image, self.vector(vector), vector, self.message(message)], -1)


class SmallEncoder(nnx.Module):
    """An encoder for CPUs: learnt vectors of characters and colours instead of pixels, trigrams instead of bytes.

    The vectors of 2 x 2 cells, one after the other, go through a linear layer. On a CPU, what each character and each
    colour adds to its result, in each of the four places, is looked up instead. The result is the same.
    """

    reads = ("crop", "blstats", "message")
    features = 128 + 32 + 32
    EMBEDDING = 16
    BLOCK = 32  # features of 2 x 2 cells
    PLACES = 256  # buckets of hashed trigrams

    def __init__(self, *, behaviours: int, for_cpu: bool, dtype: DTypeLike, rngs: nnx.Rngs):
        """Initialises the layers, which compute in `dtype`.

        `behaviours`: size of the observation BEHAVIOUR, which is added to each cell of the crop; 0: without it.
        """
        size = self.EMBEDDING
        self.characters = nnx.Param(jax.random.normal(rngs.params(), (CHARACTERS, size)))
        self.colors = nnx.Param(jax.random.normal(rngs.params(), (COLORS, size)))
        self.block = Layers(4 * size, self.BLOCK, dtype=dtype, rngs=rngs)
        self.crop = Layers(36 * self.BLOCK, 128, dtype=dtype, rngs=rngs)
        self.vector = Layers(BLSTATS, 64, 32, dtype=dtype, rngs=rngs)
        self.message = Layers(self.PLACES, 64, 32, dtype=dtype, rngs=rngs)
        self.dtype, self.for_cpu = dtype, for_cpu
        self.behaviour = BehaviourVector(behaviours, size, rngs=rngs) if behaviours else None

    def prepare(self) -> tuple[jax.Array, ...] | None:
        """For CPUs, what characters and colours add to a block in each of its places. [256, 4 * 32] and [32, 4 * 32]"""
        return (self._adds(self.characters[...]), self._adds(self.colors[...])) if self.for_cpu else None

    def __call__(self, observations: Mapping[str, jax.Array], prepared: Any = None) -> jax.Array:
        """Observations [N, ...] -> [N, 192]"""
        vector = scale(observations["blstats"]).astype(self.dtype)
        message = trigrams(observations["message"], self.PLACES).astype(self.dtype)
        behaviour = self.behaviour(observations[BEHAVIOUR]) if self.behaviour else None
        if self.for_cpu:
            blocks = elu(self._look_up(observations["crop"], behaviour, prepared or self.prepare()))
        else:
            blocks = self._look(observations["crop"].astype(jnp.int32), behaviour)
        # The hero is always at the same place of the crop, so each block can have its own weights.
        return jnp.concatenate([self.crop(blocks), self.vector(vector), self.message(message)], -1)

    def _look(self, crop: jax.Array, behaviour: jax.Array | None) -> jax.Array:
        cells = self.characters[...][crop[:, 0]] + self.colors[...][crop[:, 1]]  # [N, 12, 12, 16]
        if behaviour is not None:
            cells += behaviour[:, None, None]
        blocks = cells.astype(self.dtype).reshape(len(crop), 6, 2, 6, 2, -1).swapaxes(2, 3).reshape(len(crop), 36, -1)
        return self.block(blocks).reshape(len(crop), -1)

    def _look_up(self, crop: jax.Array, behaviour: jax.Array | None, tables: Any) -> jax.Array:
        """As `_look`, before ELU."""
        characters, colors = (table.reshape(-1, self.BLOCK) for table in tables)
        bias = self.block.linears[0].bias
        assert bias is not None

        def look_up(crop: jax.Array) -> jax.Array:
            cells = crop.astype(jnp.int32).reshape(-1, 2, 6, 2, 6, 2).swapaxes(3, 4).reshape(-1, 2, 36, 4)
            rows = 4 * cells + jnp.arange(4)
            x = bias[...].astype(self.dtype)
            for at in range(4):
                x = x + characters[rows[:, 0, :, at]] + colors[rows[:, 1, :, at]]
            return x

        # A loop of at least two turns, as XLA would otherwise look up again for each use of the result.
        blocks = jax.lax.map(look_up, in_pieces(crop, at_least=2)).reshape(-1, 36, self.BLOCK)[: len(crop)]
        if behaviour is not None:
            blocks += self._adds(behaviour).reshape(-1, 4, self.BLOCK).sum(1)[:, None]
        return blocks.reshape(len(crop), -1)

    def _adds(self, vectors: jax.Array) -> jax.Array:
        """What vectors of cells add to a block in each of its four places. [K, 16] -> [K, 4 * 32]"""
        kernel = self.block.linears[0].kernel[...].reshape(4, self.EMBEDDING, self.BLOCK).swapaxes(0, 1)
        return vectors.astype(self.dtype) @ kernel.reshape(self.EMBEDDING, -1).astype(self.dtype)


def trigrams(message: jax.Array, size: int, most: int = MOST_TEXT) -> jax.Array:
    """Counts the trigrams of a message in `size` buckets. [N, size] float32

    A hash of a trigram gives its bucket and sign, so that collisions cancel on average. `size` is a power of two.
    Characters of a message, [N, W] uint8 padded with zeros, beyond `most` are ignored.
    """
    text = message[:, : most + 2].astype(jnp.uint32)
    pieces = text[:, :-2] | text[:, 1:-1] << 8 | text[:, 2:] << 16  # [N, most]
    hashed = pieces * jnp.uint32(0x9E3779B1)  # the upper bits of a product depend on all bits of its factors
    at = hashed >> (33 - size.bit_length())
    sign = 1 - 2 * (hashed >> (32 - size.bit_length()) & 1).astype(jnp.int32)
    counted = jnp.where(pieces == 0, 0, sign).astype(jnp.float32)
    return jnp.zeros((len(text), size)).at[jnp.arange(len(text))[:, None], at].add(counted)


# The encoder of each network (a class with `reads`, `features`, `prepare` and `__call__`), and the size of its memory.
PRESETS: dict[str, tuple[Any, int]] = {"reference": (ReferenceEncoder, 512), "small": (SmallEncoder, 128)}


# Networks for novelty: fixed features of any observations, and a small network on top of them.
#
# Features are not trained: trigrams of texts are counted, cells of maps get fixed random vectors, numbers are
# unchanged. The caller normalises them.

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
