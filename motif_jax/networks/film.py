"""FiLM: a text modulates the encoder of a grid (Perez et al. 2018, arXiv 1709.07871).

As in the published baseline for BabyAI, the mission determines scales and shifts of the features of convolutions over
the cells. Other observations are encoded as in general.py and concatenated.
"""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

from motif_jax.networks.general import PARTS, GeneralEncoder, Text
from motif_jax.networks.images import elu
from motif_jax.networks.kinds import categories_of, kind_of
from motif_jax.networks.presets import Layers
from motif_jax.structs import ArraySpec

CHANNELS = 32
BLOCKS = 2
OUT = 128


class FilmBlock(nnx.Module):
    """x + elu(scale * conv(elu(conv(x))) + shift), where scale and shift are linear in the text's features."""

    def __init__(self, *, dtype: DTypeLike, rngs: nnx.Rngs):
        """Initialises two convolutions of 3 x 3, scale 1 and shift 0."""

        def convolution() -> nnx.Conv:
            return nnx.Conv(CHANNELS, CHANNELS, (3, 3), dtype=dtype, rngs=rngs)

        self.first, self.second = convolution(), convolution()
        zeros = nnx.initializers.zeros
        self.modulation = nnx.Linear(Text.FEATURES, 2 * CHANNELS, kernel_init=zeros, dtype=dtype, rngs=rngs)

    def __call__(self, x: jax.Array, text: jax.Array) -> jax.Array:
        """[B, H, W, C] and [B, 64] -> [B, H, W, C]"""
        scale, shift = jnp.split(self.modulation(text)[:, None, None], 2, -1)
        return x + elu(self.second(elu(self.first(x))) * (1 + scale) + shift)


class FilmGrid(nnx.Module):
    """Encodes a grid: learnt vectors of the cells' values, then blocks that a text modulates."""

    def __init__(self, spec: ArraySpec, *, dtype: DTypeLike, rngs: nnx.Rngs):
        """Takes the spec of a grid with the channels last."""
        rows, columns, channels = (*spec.shape, 1)[:3]
        self.shape, self.categories, self.dtype = (rows, columns, channels), categories_of(spec), dtype
        self.vectors = nnx.Param(jax.random.normal(rngs.params(), (channels * self.categories, CHANNELS)))
        self.blocks = nnx.List([FilmBlock(dtype=dtype, rngs=rngs) for _ in range(BLOCKS)])
        self.layers = Layers(rows * columns * CHANNELS, OUT, dtype=dtype, rngs=rngs)

    def __call__(self, x: jax.Array, text: jax.Array) -> jax.Array:
        """[B, H, W] or [B, H, W, C] integers, and [B, 64] -> [B, OUT]"""
        at = x.reshape(len(x), *self.shape).astype(jnp.int32) + jnp.arange(self.shape[2]) * self.categories
        cells = self.vectors[...][at].sum(3).astype(self.dtype)
        for block in self.blocks:
            cells = block(cells, text)
        return self.layers(cells.reshape(len(x), -1))


class FilmEncoder(GeneralEncoder):
    """As `GeneralEncoder`, but the sum of all texts' features modulates the encoders of grids."""

    def __init__(self, specs: Mapping[str, ArraySpec], *, for_cpu: bool, dtype: DTypeLike, rngs: nnx.Rngs):
        """Takes specs with a grid and a text, see `kinds.check_reads`."""
        kinds = {name: kind_of(name, spec) for name, spec in specs.items()}
        self.grids = tuple(name for name, kind in kinds.items() if kind == "grid")
        self.texts = tuple(name for name, kind in kinds.items() if kind == "text")
        others = [name for name in specs if name not in self.grids]
        self.parts = nnx.Dict({name: PARTS[kinds[name]](specs[name], dtype=dtype, rngs=rngs) for name in others})
        self.film = nnx.Dict({name: FilmGrid(specs[name], dtype=dtype, rngs=rngs) for name in self.grids})
        self.reads, self.for_cpu = tuple(specs), for_cpu
        self.features = sum(OUT if name in self.grids else PARTS[kinds[name]].FEATURES for name in specs)

    def _encode(self, observations: Mapping[str, jax.Array]) -> jax.Array:
        found = {name: part(observations[name]) for name, part in self.parts.items()}
        text = jnp.stack([found[name] for name in self.texts]).sum(0)
        found |= {name: part(observations[name], text) for name, part in self.film.items()}
        return jnp.concatenate([found[name] for name in self.reads], -1)
