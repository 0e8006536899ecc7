"""The policy: logits of actions and a value, from observations and memory.

A preset is an encoder, a gated recurrent unit and two heads. "reference" is the published network (2,795,640 parameters
with 23 actions); "small" is ours, for machines without an accelerator; both read NetHack. "general" and "film" are made
from the specs of any world's observations, as is a user's own encoder.
"""

from __future__ import annotations

import contextlib
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
from motif_jax.envs.own_code import failure, guarded, load_class
from motif_jax.names import import_named
from motif_jax.networks.images import CHARACTERS, Convolution, ImageEncoder, elu, fan_in_uniform, in_pieces
from motif_jax.networks.kinds import BEHAVIOUR, BY_SPECS, FIXED, FLAG, is_own, kind_of
from motif_jax.structs import BYTE_VALUES, ArraySpec, UserError
from motif_jax.system.errors import find_refusal

MESSAGE = OBSERVATIONS["message"].shape[0]  # bytes
BYTE = 255
COLORS = 32  # from 16 on reversed
BLSTATS = OBSERVATIONS["blstats"].shape[0]
MOST_TEXT = 80  # characters of a message for the small network: a line of the terminal


def scale(blstats: jax.Array) -> jax.Array:
    """`envs.nethack.observations.scale_blstats` on the device. [..., 27] integers -> [..., 27] float32"""
    return jnp.clip(blstats.astype(jnp.float32) * jnp.asarray(BLSTATS_SCALE), LOW, HIGH)


class Core(nnx.Module):
    """PyTorch's gated recurrent unit: two biases, and the reset gate acts after the recurrent product.

    r, z = sigmoid(W_r x + b_r + U_r h + c_r), sigmoid(W_z x + b_z + U_z h + c_z)
    n = tanh(W_n x + b_n + r * (U_n h + c_n))
    h' = (1 - z) * n + z * h
    """

    def __init__(self, inputs: int, size: int, *, dtype: DTypeLike, rngs: nnx.Rngs):
        """Initialises weights and biases uniformly within 1 / sqrt(size); gates in the order r, z, n."""
        self.input_kernel = fan_in_uniform(rngs, (inputs, 3 * size), size)
        self.input_bias = fan_in_uniform(rngs, (3 * size,), size)
        self.kernel = fan_in_uniform(rngs, (size, 3 * size), size)
        self.bias = fan_in_uniform(rngs, (3 * size,), size)
        self.dtype = dtype

    def project(self, features: jax.Array) -> jax.Array:
        """Computes the products of the inputs, without the memory. [..., inputs] -> [..., 3 * size]"""
        kernel, bias = self.input_kernel[...].astype(self.dtype), self.input_bias[...].astype(self.dtype)
        return features @ kernel + bias

    def step(self, projected: jax.Array, first: jax.Array, core: jax.Array) -> jax.Array:
        """Computes one step; `first` resets the memory. [B, 3 * size], [B] and [B, size] float32 -> [B, size]"""
        core = jnp.where(first[:, None], 0, core)
        kernel, bias = self.kernel[...].astype(self.dtype), self.bias[...].astype(self.dtype)
        reset, update, new = jnp.split(projected.astype(jnp.float32), 3, -1)
        recalled = (core.astype(self.dtype) @ kernel + bias).astype(jnp.float32)
        reset_core, update_core, new_core = jnp.split(recalled, 3, -1)
        new = jnp.tanh(new + jax.nn.sigmoid(reset + reset_core) * new_core)
        return new + jax.nn.sigmoid(update + update_core) * (core - new)

    def unroll(self, projected: jax.Array, first: jax.Array, core: jax.Array) -> jax.Array:
        """Computes T steps. [T, B, 3 * size], [T, B] and [B, size] -> memory after each step, [T, B, size] float32"""

        def advance(core: jax.Array, inputs: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            core = self.step(*inputs, core)
            return core, core

        return jax.lax.scan(advance, core, (projected, first))[1]


class Layers(nnx.Module):
    """Linear layers with ELU after each; orthogonal weights and zero biases at the start."""

    GAIN = 1.0  # of the weights

    def __init__(self, *sizes: int, dtype: DTypeLike = jnp.float32, rngs: nnx.Rngs):
        """Initialises layers sizes[0] -> sizes[1] -> ..."""
        how: dict[str, Any] = {"kernel_init": nnx.initializers.orthogonal(self.GAIN), "dtype": dtype, "rngs": rngs}
        self.linears = nnx.List([nnx.Linear(*pair, **how) for pair in itertools.pairwise(sizes)])

    def __call__(self, x: jax.Array) -> jax.Array:
        """[N, sizes[0]] -> [N, sizes[-1]]"""
        for linear in self.linears:
            x = elu(linear(x))
        return x


class BehaviourVector(nnx.Module):
    """The observation BEHAVIOUR as a vector, as large as the learnt vectors of cells, so that it is not drowned out.

    It is for plugins whose `Acting` has behaviours; it lies here because encoders add it to each cell of their grids.
    """

    def __init__(self, behaviours: int, features: int, *, rngs: nnx.Rngs):
        self.vectors = nnx.Param(jax.random.normal(rngs.params(), (behaviours, features)))

    def __call__(self, behaviour: jax.Array) -> jax.Array:
        """[N, behaviours] -> [N, features]"""
        return behaviour @ self.vectors[...]


class ReferenceEncoder(nnx.Module):
    """The published encoder: crop as a picture, bottom line encoded and raw, message bytes as numbers."""

    reads = FIXED["reference"].reads
    features = ImageEncoder.FEATURES + 128 + BLSTATS + 128

    def __init__(self, *, behaviours: int, for_cpu: bool, dtype: DTypeLike, rngs: nnx.Rngs):
        """Initialises the layers, which compute in `dtype`; `for_cpu` as in images.py. `behaviours` has no effect."""
        self.image = ImageEncoder(for_cpu=for_cpu, dtype=dtype, rngs=rngs)
        self.vector = Layers(BLSTATS, 128, 128, dtype=dtype, rngs=rngs)
        self.message = Layers(MESSAGE, 128, 128, dtype=dtype, rngs=rngs)
        self.dtype = dtype

    def prepare(self) -> jax.Array | None:
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

    reads = FIXED["small"].reads
    features = 128 + 32 + 32
    EMBEDDING = 16
    BLOCK = 32  # features of 2 x 2 cells
    PLACES = 256  # buckets of hashed trigrams

    def __init__(self, *, behaviours: int, for_cpu: bool, dtype: DTypeLike, rngs: nnx.Rngs):
        """As `ReferenceEncoder`, but the vector of BEHAVIOUR is added to each cell of the crop."""
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


# Encoders for any observations: one part per observation, chosen by the kind of its spec (kinds.py).
#
# All parts are small enough for two CPU cores. Numbers are compressed by sign(x) log(1 + |x|), so that large counts and
# fractions do not need a scale.
#
# With FiLM, a text modulates the encoder of a grid (Perez et al. 2018, arXiv 1709.07871): the mission determines scales
# and shifts of the cells' features.

Observations = Mapping[str, jax.Array]
Specs = Mapping[str, ArraySpec]
MOST_BLOCKS = 49  # maximum places of a grid or an image before it is flattened
CHANNELS, KEPT = 32, 16  # features of a cell
OUT = 128


# ---- parts: an observation and BEHAVIOUR, if the network has it, in; features out
# All take the spec of the observation, the size of BEHAVIOUR, and `for_cpu` as in images.py; not all use them.


class TextPart(nnx.Module):
    """Encodes text by its trigrams of characters, wherever they stand."""

    FEATURES = 64
    PLACES = 512  # buckets of hashed trigrams
    MOST = 256  # characters; the rest is ignored

    def __init__(self, spec: ArraySpec, *, behaviours: int, for_cpu: bool, dtype: DTypeLike, rngs: nnx.Rngs):
        self.layers = Layers(self.PLACES, 128, self.FEATURES, dtype=dtype, rngs=rngs)
        self.dtype = dtype

    def __call__(self, x: jax.Array, behaviour: jax.Array | None = None) -> jax.Array:
        """[B, N] uint8 -> [B, 64]"""
        padded = jnp.pad(x, ((0, 0), (0, 2)))  # so that the last two characters begin trigrams too
        return self.layers(trigrams(padded, self.PLACES, self.MOST).astype(self.dtype))


class VectorPart(nnx.Module):
    """Encodes numbers of any size."""

    FEATURES = 64

    def __init__(self, spec: ArraySpec, *, behaviours: int, for_cpu: bool, dtype: DTypeLike, rngs: nnx.Rngs):
        self.layers = Layers(math.prod(spec.shape), 64, self.FEATURES, dtype=dtype, rngs=rngs)
        self.dtype = dtype

    def __call__(self, x: jax.Array, behaviour: jax.Array | None = None) -> jax.Array:
        """[B, ...] -> [B, 64]"""
        x = x.reshape(len(x), -1).astype(jnp.float32)
        return self.layers((jnp.sign(x) * jnp.log1p(jnp.abs(x))).astype(self.dtype))


class CategoryPart(nnx.Module):
    """Encodes categorical values."""

    FEATURES = 32

    def __init__(self, spec: ArraySpec, *, behaviours: int, for_cpu: bool, dtype: DTypeLike, rngs: nnx.Rngs):
        """Initialises a learnt vector for each value at each place, and a layer from their sum -> 32."""
        self.places, self.categories = math.prod(spec.shape), spec.categories or BYTE_VALUES
        self.vectors = nnx.Param(jax.random.normal(rngs.params(), (self.places * self.categories, self.FEATURES)))
        self.layers = Layers(self.FEATURES, self.FEATURES, dtype=dtype, rngs=rngs)
        self.dtype = dtype

    def __call__(self, x: jax.Array, behaviour: jax.Array | None = None) -> jax.Array:
        """[B] or [B, N] integers -> [B, 32]"""
        at = x.reshape(len(x), self.places).astype(jnp.int32) + jnp.arange(self.places) * self.categories
        return self.layers(self.vectors[...][at].sum(1).astype(self.dtype))


class Cells(nnx.Module):
    """Learnt vectors of the values of a grid's cells, to which the vector of BEHAVIOUR is added."""

    behaviour: BehaviourVector | None

    def __init__(self, spec: ArraySpec, size: int, dtype: DTypeLike, rngs: nnx.Rngs):
        self.first = spec.kind == "planes"  # channels first
        rows, columns, channels = (*spec.shape[1:], spec.shape[0]) if self.first else (*spec.shape, 1)[:3]
        self.shape, self.categories, self.dtype = (rows, columns, channels), spec.categories or BYTE_VALUES, dtype
        self.vectors = nnx.Param(jax.random.normal(rngs.params(), (channels * self.categories, size)))

    def cells(self, x: jax.Array, behaviour: jax.Array | None) -> jax.Array:
        """[B, H, W], [B, H, W, C], or of planes [B, C, H, W] integers, and [B, behaviours] -> [B, H, W, size]"""
        x = jnp.moveaxis(x, 1, -1) if self.first else x
        at = x.reshape(len(x), *self.shape).astype(jnp.int32) + jnp.arange(self.shape[2]) * self.categories
        cells = self.vectors[...][at].sum(3).astype(self.dtype)
        if self.behaviour and behaviour is not None:
            cells += self.behaviour(behaviour)[:, None, None].astype(cells.dtype)
        return cells


class GridPart(Cells):
    """Encodes a grid by merges of 2 x 2 cells."""

    FEATURES = 128
    EMBEDDING = 16

    def __init__(self, spec: ArraySpec, *, behaviours: int, for_cpu: bool, dtype: DTypeLike, rngs: nnx.Rngs):
        """Initialises vectors per channel, merges to 32, then 64 features, and a layer from all cells -> 128."""
        super().__init__(spec, self.EMBEDDING, dtype, rngs)
        blocks: list[Layers] = []
        (rows, columns, _), size, features = self.shape, self.EMBEDDING, 32
        while not blocks or rows * columns > MOST_BLOCKS:
            blocks.append(Layers(4 * size, features, dtype=dtype, rngs=rngs))
            rows, columns, size, features = -(-rows // 2), -(-columns // 2), features, 64
        self.blocks = nnx.List(blocks)
        self.layers = Layers(rows * columns * size, self.FEATURES, dtype=dtype, rngs=rngs)
        self.behaviour = BehaviourVector(behaviours, self.EMBEDDING, rngs=rngs) if behaviours else None

    def __call__(self, x: jax.Array, behaviour: jax.Array | None = None) -> jax.Array:
        """As `cells` -> [B, 128]"""
        cells = self.cells(x, behaviour)
        for block in self.blocks:
            cells = block(in_blocks(cells))
        return self.layers(cells.reshape(len(x), -1))


class ImagePart(nnx.Module):
    """Encodes an image by convolutions."""

    FEATURES = 128

    def __init__(self, spec: ArraySpec, *, behaviours: int, for_cpu: bool, dtype: DTypeLike, rngs: nnx.Rngs):
        """Initialises convolutions of 8 x 8 (large images), 4 x 4 and 3 x 3, and a layer from all places -> 128."""
        rows, columns, channels = (*spec.shape, 1)[:3]
        self.shape, self.dtype = (rows, columns, channels), dtype
        sides = [(8, 4)] * (min(rows, columns) >= 36)  # and strides
        left = rows * columns / 16 ** len(sides)
        while left > MOST_BLOCKS:
            sides, left = [*sides, (4, 2)], left / 4
        convolutions = []
        how: dict[str, Any] = {"dtype": dtype, "kernel_init": nnx.initializers.orthogonal(), "rngs": rngs}
        for number, (side, stride) in enumerate([*sides, (3, 1)]):
            outputs = 16 if number == 0 else 32
            convolutions.append(Convolution(channels, outputs, side, stride, for_cpu=for_cpu, **how))
            rows, columns, channels = -(-rows // stride), -(-columns // stride), outputs
        self.convolutions = nnx.List(convolutions)
        self.layers = Layers(rows * columns * channels, self.FEATURES, dtype=dtype, rngs=rngs)

    def __call__(self, x: jax.Array, behaviour: jax.Array | None = None) -> jax.Array:
        """[B, H, W] or [B, H, W, C] uint8 -> [B, 128]"""
        x = (x.reshape(len(x), *self.shape).astype(jnp.float32) / (BYTE_VALUES - 1)).astype(self.dtype)
        for convolution in self.convolutions:
            x = elu(convolution(x))
        return self.layers(x.reshape(len(x), -1))


PARTS: dict[str, type[TextPart | VectorPart | CategoryPart | GridPart | ImagePart]] = {
    "text": TextPart, "vector": VectorPart, "category": CategoryPart,
    "grid": GridPart, "planes": GridPart, "image": ImagePart,
}  # fmt: skip


class GeneralEncoder(nnx.Module):
    """Encodes all given observations; concatenates the features of the parts.

    On CPUs it takes a few rows at a time. So intermediate results stay in the cache, and recomputing them for gradients
    is faster than storing them.
    """

    reads: tuple[str, ...]  # names of the observations
    features: int

    def __init__(self, specs: Specs, *, behaviours: int = 0, for_cpu: bool, **how: Any):
        """Takes the specs of the observations, the size of BEHAVIOUR, and `dtype` and `rngs`."""
        kinds = {name: PARTS[kind_of(name, spec)] for name, spec in specs.items()}
        how |= {"behaviours": behaviours, "for_cpu": for_cpu}
        self.parts = nnx.Dict({name: kinds[name](spec, **how) for name, spec in specs.items()})
        self.reads, self.for_cpu, self.behaviour = tuple(specs), for_cpu, bool(behaviours)
        self.features = sum(kind.FEATURES for kind in kinds.values())

    def __call__(self, observations: Observations, prepared: None = None) -> jax.Array:
        """Observations [N, ...] -> [N, features]"""
        if not self.for_cpu:
            return self._encode(observations)
        keys = (*self.reads, *([BEHAVIOUR] if self.behaviour else []))
        features = jax.lax.map(jax.checkpoint(self._encode), {key: in_pieces(observations[key]) for key in keys})
        return features.reshape(-1, self.features)[: len(observations[self.reads[0]])]

    def _encode(self, observations: Observations) -> jax.Array:
        behaviour = observations.get(BEHAVIOUR)
        return jnp.concatenate([self.parts[name](observations[name], behaviour) for name in self.reads], -1)


def in_blocks(cells: jax.Array) -> jax.Array:
    """Joins every 2 x 2 cells, with zeros beyond odd edges. [B, H, W, C] -> [B, H / 2, W / 2, 4 C], rounded up"""
    count, rows, columns, size = cells.shape
    cells = jnp.pad(cells, ((0, 0), (0, rows % 2), (0, columns % 2), (0, 0)))
    blocks = cells.reshape(count, -(-rows // 2), 2, -(-columns // 2), 2, size).swapaxes(2, 3)
    return blocks.reshape(count, -(-rows // 2), -(-columns // 2), 4 * size)


class FilmGrid(Cells):
    """Encodes a grid by two layers for each cell, the first scaled by a text.

    With four convolutions instead, BabyAI's GoToLocal was not learnt in thirteen minutes; so it takes one and a half
    (docs/results/babyai.md).
    """

    def __init__(self, spec: ArraySpec, behaviours: int, *, dtype: DTypeLike, rngs: nnx.Rngs):
        """Takes the spec of a grid with the channels last, and the size of BEHAVIOUR."""
        super().__init__(spec, CHANNELS, dtype, rngs)
        self.cell = nnx.Linear(CHANNELS, CHANNELS, dtype=dtype, rngs=rngs)
        self.modulation = nnx.Linear(TextPart.FEATURES, 2 * CHANNELS, dtype=dtype, rngs=rngs)
        self.kept = nnx.Linear(CHANNELS, KEPT, dtype=dtype, rngs=rngs)
        self.layers = Layers(self.shape[0] * self.shape[1] * KEPT, OUT, dtype=dtype, rngs=rngs)
        self.behaviour = BehaviourVector(behaviours, CHANNELS, rngs=rngs) if behaviours else None

    def __call__(self, x: jax.Array, text: jax.Array, behaviour: jax.Array | None = None) -> jax.Array:
        """[B, H, W] or [B, H, W, C] integers, [B, 64] and [B, behaviours] -> [B, OUT]"""
        cells = self.cells(x, behaviour)
        factor, shift = jnp.split(self.modulation(text)[:, None, None], 2, -1)
        kept = elu(self.kept(elu(self.cell(cells) * (1 + factor) + shift)))
        return self.layers(kept.reshape(len(x), -1))


class FilmEncoder(GeneralEncoder):
    """As `GeneralEncoder`, but the sum of all texts' features modulates the encoders of grids."""

    def __init__(self, specs: Specs, *, behaviours: int = 0, for_cpu: bool, **how: Any):
        """Takes specs with a grid and a text, see `kinds.check_reads`."""
        kinds = {name: kind_of(name, spec) for name, spec in specs.items()}
        self.grids = tuple(name for name, kind in kinds.items() if kind == "grid")
        self.texts = tuple(name for name, kind in kinds.items() if kind == "text")
        others = {name: spec for name, spec in specs.items() if name not in self.grids}
        super().__init__(others, behaviours=behaviours, for_cpu=for_cpu, **how)
        self.film = nnx.Dict({name: FilmGrid(specs[name], behaviours, **how) for name in self.grids})
        self.reads, self.features = tuple(specs), self.features + OUT * len(self.grids)

    def _encode(self, observations: Observations) -> jax.Array:
        behaviour = observations.get(BEHAVIOUR)
        features = {name: part(observations[name], behaviour) for name, part in self.parts.items()}
        text = jnp.stack([features[name] for name in self.texts]).sum(0)
        features |= {name: part(observations[name], text, behaviour) for name, part in self.film.items()}
        return jnp.concatenate([features[name] for name in self.reads], -1)


# An encoder of the user's: `module:Class`, a Flax NNX module that maps observations to features.
#
#     class Encoder(nnx.Module):
#         def __init__(self, specs, *, dtype, rngs): ...    # specs: {name: ArraySpec} of the observations
#         def __call__(self, observations): ...             # {name: [N, ...]} -> [N, features]
#
# The memory and the heads follow it, as in the general network. docs/own-network.md has an example.

ROWS = 2  # of the observations that are encoded to learn the number of features


class OwnEncoder(nnx.Module):
    """Wraps an encoder of the user's, and checks it once."""

    def __init__(self, path: str, specs: Specs, *, dtype: DTypeLike, rngs: nnx.Rngs):
        """Makes the encoder; raises UserError if it does not fit its purpose, UserCodeError if it raises."""
        self.path, self.reads, self.dtype = path, tuple(specs), dtype
        with calls(path):
            self.encoder = load_class(path, "network", FLAG)(dict(specs), dtype=dtype, rngs=rngs)
        if not isinstance(self.encoder, nnx.Module):
            raise self._error("it is not a subclass of flax.nnx.Module")
        before = self._variables()
        ones = {name: jnp.asarray(np.ones((ROWS, *spec.shape), spec.dtype)) for name, spec in specs.items()}
        with calls(path):
            features = self.encoder(ones)
        self.features = self._check(features, ROWS)
        for name, array in self._variables().items():
            if name not in before or not np.array_equal(before[name], array):
                why = f"its call changes {name!r}, and changes are lost, as those of nnx.BatchNorm and nnx.Dropout"
                raise self._error(f"{why}: use nnx.LayerNorm")
        graph, state = nnx.split(self.encoder)
        more_rows = {name: jax.ShapeDtypeStruct((ROWS + 1, *x.shape[1:]), x.dtype) for name, x in ones.items()}
        with calls(path):  # as training compiles it, and with another number of rows
            features = jax.eval_shape(lambda state, ones: nnx.merge(graph, state)(ones), state, more_rows)
        self._check(features, ROWS + 1)

    def __call__(self, observations: Observations, prepared: None = None) -> jax.Array:
        """Observations [N, ...] -> [N, features]"""
        with calls(self.path):
            features = self.encoder({name: observations[name] for name in self.reads})
        return features.astype(self.dtype)

    def _variables(self) -> dict[str, Any]:
        """The arrays of the encoder by name; raises UserError if training cannot keep one of them."""
        variables = {}
        for path, leaf in nnx.to_flat_state(nnx.state(self.encoder)):
            name, array = ".".join(map(str, path)), leaf.get_raw_value()
            counts = isinstance(array, jax.Array) and jnp.issubdtype(array.dtype, jnp.integer)
            kind = getattr(array, "dtype", type(array))
            if kind != jnp.float32 and (isinstance(leaf, nnx.Param) or not counts):
                raise self._error(f"its variable {name!r} has the type {kind}, and parameters need float32")
            variables[name] = array
        return variables

    def _check(self, features: Any, rows: int) -> int:
        shape, dtype = getattr(features, "shape", None), getattr(features, "dtype", type(features).__name__)
        floats = isinstance(features, jax.Array | jax.ShapeDtypeStruct) and jnp.issubdtype(dtype, jnp.floating)
        if not floats or shape is None or len(shape) != 2 or shape[0] != rows or not shape[1]:
            gave = f"for {rows} rows of observations it gave shape {shape} and type {dtype}"
            raise self._error(f"{gave}, instead of floating-point numbers of shape ({rows}, features)")
        return shape[1]

    def _error(self, why: str) -> UserError:
        return UserError(f"cannot use the network {self.path!r}: {why} ({FLAG})")


def calls(path: str) -> contextlib.AbstractContextManager[None]:
    """A context for calls of the encoder, whose errors become UserCodeError."""
    return guarded(lambda error: None if find_refusal(error) else failure(f"the network {path!r}", FLAG, error))


GENERAL_CORE = 128
BEHAVIOUR_FEATURES = 64  # features of BEHAVIOUR alone


class PolicyNetwork(nnx.Module):
    """Maps observations and memory to logits of actions and a value."""

    reads: tuple[str, ...]  # names of the observations
    core_size: int  # numbers of memory per game

    def __init__(
        self, preset: str, num_actions: int, *, specs: Specs | None = None, behaviours: int = 0,
        dtype: DTypeLike = jnp.float32, for_cpu: bool | None = None, rngs: nnx.Rngs,
    ):  # fmt: skip
        """Initialises the parameters as published, for `num_actions` logits.

        `preset`: one of FIXED, or of BY_SPECS, or `module:Class`. `specs`: of the observations, except for FIXED.
        `behaviours`: size of the observation BEHAVIOUR; 0: the network does not have it. `dtype`: of products;
        parameters and results are float32. `for_cpu`: use the fast computation for CPUs, with the same result
        (images.py); None: if the default backend is a CPU.
        """
        for_cpu = jax.default_backend() == "cpu" if for_cpu is None else for_cpu
        how: dict[str, Any] = {"behaviours": behaviours, "for_cpu": for_cpu, "dtype": dtype, "rngs": rngs}
        self.core_size = GENERAL_CORE
        if preset in BY_SPECS:
            self.encoder: Any = import_named(BY_SPECS[preset].encoder)(specs or {}, **how)
        elif is_own(preset):
            self.encoder = OwnEncoder(preset, specs or {}, dtype=dtype, rngs=rngs)
        else:
            self.core_size = FIXED[preset].core_size
            self.encoder = import_named(FIXED[preset].encoder)(**how)
        self.reads = self.encoder.reads
        self.behaviour = BehaviourVector(behaviours, BEHAVIOUR_FEATURES, rngs=rngs) if behaviours else None
        features = self.encoder.features + (BEHAVIOUR_FEATURES if behaviours else 0)
        self.core = Core(features, self.core_size, dtype=dtype, rngs=rngs)
        self.value = nnx.Linear(self.core_size, 1, kernel_init=nnx.initializers.orthogonal(), rngs=rngs)
        self.policy = nnx.Linear(self.core_size, num_actions, kernel_init=nnx.initializers.orthogonal(), rngs=rngs)

    def prepare(self) -> Any:
        """The part of `step` that depends only on the parameters, so that steps can share it."""
        with jax.named_scope("encoder"):
            return self.encoder.prepare() if hasattr(self.encoder, "prepare") else None

    def step(
        self, observations: Observations, first: jax.Array, core: jax.Array, prepared: Any = None
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Computes one step of each game. Returns logits [B, A], values [B] and memory [B, core_size], float32.

        `observations`: those of `reads`, and BEHAVIOUR if the network has it, [B, ...]. `first`: an episode begins
        here, which resets the memory, [B] bool. `core`: memory before the step. `prepared`: result of `prepare`; if
        None, it is computed here.
        """
        projected = self._project(observations, prepared)
        with jax.named_scope("core"):
            core = self.core.step(projected, first, core)
        return *self._heads(core), core

    def unroll(self, observations: Observations, first: jax.Array, core: jax.Array) -> tuple[jax.Array, jax.Array]:
        """As T calls of `step`, with everything but the memory in parallel: logits [T, B, A], values [T, B], float32.

        Observations and `first`: [T, B, ...]; `core`: memory before the first step.
        """
        steps, batch = first.shape
        keys = (*self.reads, *([BEHAVIOUR] if self.behaviour else []))
        flat = {key: observations[key].reshape(steps * batch, *observations[key].shape[2:]) for key in keys}
        projected = self._project(flat).reshape(steps, batch, -1)
        with jax.named_scope("core"):
            cores = self.core.unroll(projected, first, core)
        return self._heads(cores)

    def _project(self, observations: Observations, prepared: Any = None) -> jax.Array:
        with jax.named_scope("encoder"):
            features = self.encoder(observations, prepared)
            if self.behaviour:
                behaviour = self.behaviour(observations[BEHAVIOUR])
                features = jnp.concatenate([features, behaviour.astype(features.dtype)], -1)
        with jax.named_scope("core"):
            return self.core.project(features)

    def _heads(self, core: jax.Array) -> tuple[jax.Array, jax.Array]:
        with jax.named_scope("heads"):
            return self.policy(core), self.value(core)[..., 0]
