"""Encoders of NetHack policies: the observations of one step in, one vector of features out.

`PRESETS` has the networks. Their observations are also in kinds.py, for checks without JAX.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

from motif_jax.envs.nethack.observations import BLSTATS_SCALE, HIGH, LOW, OBSERVATIONS
from motif_jax.networks.images import ImageEncoder, elu, in_pieces
from motif_jax.networks.kinds import BEHAVIOUR
from motif_jax.networks.tiles import CHARACTERS

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


class PiecewiseEncoder(nnx.Module):
    """An encoder that computes all features from the observations, on CPUs a few rows at a time.

    So intermediate results stay in the cache, and recomputing them for gradients is faster than storing them.
    """

    reads: tuple[str, ...]  # names of the observations
    features: int
    for_cpu: bool
    behaviour: Any  # whether it also reads BEHAVIOUR

    def prepare(self) -> None:
        """Returns None: nothing depends on the parameters alone."""

    def __call__(self, observations: Mapping[str, jax.Array], prepared: None = None) -> jax.Array:
        """Observations [N, ...] -> [N, features]"""
        if not self.for_cpu:
            return self._encode(observations)
        keys = (*self.reads, *([BEHAVIOUR] if self.behaviour else []))
        features = jax.lax.map(jax.checkpoint(self._encode), {key: in_pieces(observations[key]) for key in keys})
        return features.reshape(-1, self.features)[: len(observations[self.reads[0]])]

    def _encode(self, observations: Mapping[str, jax.Array]) -> jax.Array:
        raise NotImplementedError


class SmallEncoder(PiecewiseEncoder):
    """An encoder for CPUs: learnt vectors of characters and colours instead of pixels, trigrams instead of bytes."""

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

    def _encode(self, observations: Mapping[str, jax.Array]) -> jax.Array:
        vector = scale(observations["blstats"]).astype(self.dtype)
        message = trigrams(observations["message"], self.PLACES).astype(self.dtype)
        return jnp.concatenate([self._look(observations), self.vector(vector), self.message(message)], -1)

    def _look(self, observations: Mapping[str, jax.Array]) -> jax.Array:
        crop = observations["crop"].astype(jnp.int32)
        cells = self.characters[...][crop[:, 0]] + self.colors[...][crop[:, 1]]  # [N, 12, 12, 16]
        if self.behaviour:
            cells += self.behaviour(observations[BEHAVIOUR])[:, None, None]
        count = len(cells)
        blocks = cells.astype(self.dtype).reshape(count, 6, 2, 6, 2, -1).swapaxes(2, 3).reshape(count, 6, 6, -1)
        # The hero is always at the same place of the crop, so each block can have its own weights.
        return self.crop(self.block(blocks).reshape(count, -1))


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
