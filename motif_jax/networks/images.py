"""Encodes the picture around the hero: three convolutions and a linear layer, as published.

An accelerator draws the picture and applies plain convolutions. Two changes make CPUs faster with the same result: the
first convolution is looked up without drawing the picture; and the convolutions process a few frames at a time, so that
intermediate results stay in the cache. The backward pass looks up the first layer again instead of storing it.
"""

from __future__ import annotations

import functools
import hashlib
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.typing import DTypeLike
from PIL import Image, ImageDraw, ImageFont

from motif_jax.structs import UserError

# ---- the picture: drawn, or convolved without drawing it
#
# Each terminal cell is a tile of 6 x 6 pixels: a glyph of 6 x 11 in one of 16 colours on black, shrunk by averaging.
# The published tiles come from Pillow's bitmap font (Courier Bold 8 of the X Window System) and OpenCV. This file
# computes the same bytes without OpenCV.
#
# Colours from 16 on (reversed on the terminal; the published agent lacks them) are drawn as the colour minus 16.
#
# `tile_table` computes the first convolution by look-ups instead of multiplications. The convolution covers 8 x 8
# pixels with stride 4. So each of its places covers 2 x 2 tiles, and its start in the first tile is 0, 4 or 2 pixels in
# turn: 3 phases along each axis. A tile's contribution depends only on the tile, the phases and its position among the
# four. The table of these contributions, [contributions, outputs], is computed by one small matrix product; a place is
# then a sum of four of its rows.
#
# Each of a tile's red, green and blue planes is its glyph in one of three brightnesses or black. So the matrix product
# computes planes, and the table of tiles sums planes. (Looking up planes would avoid this sum, but 12 rows per place
# take longer.) The result equals the convolution up to the order of summation.

CHARACTERS, COLORS = 256, 16
TILE, GLYPH_ROWS = 6, 11  # pixels
CELLS = 12  # tiles on a side

# Dark, then bright; 7 and 8 are greys in the published order, and 0 is invisible.
PALETTE: tuple[str, ...] = ("000000", "800000", "008000", "808000", "000080", "800080", "008080", "808080")
PALETTE += ("C0C0C0", "FF0000", "00FF00", "FFFF00", "0000FF", "FF00FF", "00FFFF", "FFFFFF")
PIGMENTS = np.array([list(bytes.fromhex(color)) for color in PALETTE])  # red, green, blue. [16, 3]

SIDE, STRIDE = 8, 4
PLACES = 16  # along an axis; the second convolution does not read the 17th
PHASES = 3
PARTS = (PHASES * 2) ** 2  # (phase, first or second tile) down, then across
WHITE = 255  # value of a white pixel
RGB = 3
ATLAS = "5582de63c4d8be4a8f001a077cbacd052170ee4510bc0ab5b91485186692df40"  # SHA-256 of all tiles


@functools.cache
def tile_atlas() -> np.ndarray:
    """Draws all tiles. [256, 16, 6, 6, 3] uint8"""
    # A glyph may reach into its neighbour's cell, so they are cut from one drawn line, as the published ones.
    line = "".join(chr(code) if chr(code).isprintable() else " " for code in range(CHARACTERS))
    drawn = Image.new("1", (TILE * CHARACTERS, GLYPH_ROWS))
    ImageDraw.Draw(drawn).text((0, 0), line, fill=1, font=ImageFont.load_default_imagefont())
    glyphs = np.asarray(drawn).reshape(GLYPH_ROWS, CHARACTERS, TILE).swapaxes(0, 1)  # [256, 11, 6] bool
    # A tile's row i averages the glyph's rows that it covers. In 66ths of the height, row i is [11 i, 11 i + 11), the
    # glyph's row j is [6 j, 6 j + 6).
    i, j = np.arange(TILE)[:, None], np.arange(GLYPH_ROWS)
    top, bottom = np.maximum(GLYPH_ROWS * i, TILE * j), np.minimum(GLYPH_ROWS * (i + 1), TILE * (j + 1))
    overlap = np.maximum(bottom - top, 0)  # [6, 11]
    elevenths = np.einsum("ij,cjx->cix", overlap, glyphs)  # [256, 6, 6], 0..11
    ink = PIGMENTS[None, :, None, None, :] * elevenths[:, None, :, :, None]
    atlas = ((2 * ink + GLYPH_ROWS) // (2 * GLYPH_ROWS)).astype(np.uint8)  # to the nearest; elevenths cannot tie
    if hashlib.sha256(atlas.tobytes()).hexdigest() != ATLAS:
        raise UserError("this Pillow draws another font than networks were trained with: pip install pillow==13.0.0")
    return atlas


def render(crop: jax.Array) -> jax.Array:
    """Draws crops, which are characters and colours. [N, 2, 12, 12] uint8 -> [N, 72, 72, 3] uint8"""
    atlas, crop = jnp.asarray(tile_atlas().reshape(-1, TILE, TILE, 3)), crop.astype(jnp.int32)
    tiles = atlas[crop[:, 0] * COLORS + crop[:, 1] % COLORS]  # [N, 12, 12, 6, 6, 3]
    return tiles.swapaxes(2, 3).reshape(-1, TILE * CELLS, TILE * CELLS, 3)


class Inks(NamedTuple):
    """Components of the tile atlas: up to 189 glyphs, the first blank, in 3 brightnesses."""

    glyph: np.ndarray  # [256]: glyph number of each character
    brightness: np.ndarray  # [16, 3]: of a colour's red, green and blue; arbitrary where not `present`
    present: np.ndarray  # [16, 3] bool
    planes: np.ndarray  # [glyphs, 3, 36] float32: pixels of a glyph in a brightness, 0..1


@functools.cache
def inks() -> Inks:
    """Splits the tile atlas into its components."""
    values = np.unique(PIGMENTS)[1:]  # the first is black
    greys = [int(np.flatnonzero((value == PIGMENTS).all(1))[0]) for value in values]  # colours with R = G = B = value
    planes = tile_atlas()[..., 0][:, greys].reshape(-1, len(values) * TILE * TILE)
    planes, glyph = np.unique(planes, axis=0, return_inverse=True)
    brightness = np.searchsorted(values, PIGMENTS)
    planes = planes.reshape(-1, len(values), TILE * TILE).astype(np.float32) / WHITE
    return Inks(glyph.reshape(-1), brightness, PIGMENTS > 0, planes)


def tile_table(kernel: jax.Array) -> jax.Array:
    """Computes tiles' contributions. [8, 8, 3, outputs] -> [glyphs * COLORS * PARTS, outputs] float32"""
    parts, outputs = inks(), kernel.shape[-1]
    # The kernel at each position relative to a tile, zero outside.
    border = (TILE - 2, TILE - 2)
    padded = jnp.pad(kernel.astype(jnp.float32), (border, border, (0, 0), (0, 0)))
    starts = [TILE - 2 + TILE * tile - 2 * phase for phase in range(PHASES) for tile in (0, 1)]
    padded = jnp.stack([padded[start : start + TILE] for start in starts])  # [6, 6, 16, 3, outputs]
    padded = jnp.stack([padded[:, :, start : start + TILE] for start in starts], 1)  # [6, 6, 6, 6, 3, outputs]
    seen = padded.reshape(PARTS, TILE * TILE, RGB, outputs).transpose(1, 2, 0, 3).reshape(TILE * TILE, -1)
    planes = jnp.asarray(parts.planes.reshape(-1, TILE * TILE)) @ seen
    planes = planes.reshape(*parts.planes.shape[:2], RGB, PARTS * outputs)
    black = jnp.zeros_like(planes[:, 0, 0])
    tiles = [
        sum((planes[:, parts.brightness[color, i], i] for i in range(RGB) if parts.present[color, i]), black)
        for color in range(COLORS)
    ]
    return jnp.stack(tiles, 1).reshape(-1, outputs)


def tile_rows(crop: jax.Array) -> jax.Array:
    """Returns the rows of `tile_table` whose sum is the convolution. [N, 2, 12, 12] uint8 -> [4, N, 256] int32

    The places are ordered in blocks of 2 x 2 for the next convolution.
    """
    cells = (jnp.asarray(inks().glyph)[crop[:, 0]] * COLORS + crop[:, 1] % COLORS).reshape(len(crop), -1)
    start = STRIDE * np.arange(PLACES)
    phase, tile = start % TILE // 2, start // TILE
    rows = []
    for down in (0, 1):
        for across in (0, 1):
            cell = (tile + down)[:, None] * CELLS + tile + across  # [16, 16]
            part = (2 * phase + down)[:, None] * (2 * PHASES) + 2 * phase + across  # [16, 16]
            cell, part = (x.reshape(8, 2, 8, 2).swapaxes(1, 2).reshape(-1) for x in (cell, part))
            rows.append(cells[:, cell] * PARTS + part)
    return jnp.stack(rows).astype(jnp.int32)


def fan_in_uniform(rngs: nnx.Rngs, shape: tuple[int, ...], inputs: int) -> nnx.Param:
    """Initialises weights or biases as PyTorch does: uniformly within 1 / sqrt(inputs)."""
    bound = 1 / math.sqrt(inputs)
    return nnx.Param(jax.random.uniform(rngs.params(), shape, minval=-bound, maxval=bound))


FRAMES = 32  # per pass through the convolutions on a CPU: 16 to 64 take the same time, more take longer
STRIDES = (4, 2, 2)
Weights = list[tuple[jax.Array, jax.Array]]  # kernels [side, side, inputs, outputs] and biases [outputs]


def elu(x: jax.Array) -> jax.Array:
    """Returns x, or exp(x) - 1 below zero; expm1 would take four times as long on CPUs."""
    return jnp.where(x > 0, x, jnp.exp(jnp.minimum(x, 0)) - 1)


class ImageEncoder(nnx.Module):
    """Encodes pictures: 72 x 72 x 3 -> 17 x 17 x 32 -> 7 x 7 x 64 -> 3 x 3 x 128 -> 512."""

    FEATURES = 512
    SIZES = ((3, 32, 8), (32, 64, 4), (64, 128, 3))  # inputs, outputs, side; strides as in STRIDES
    FLAT = 3 * 3 * 128

    def __init__(self, *, for_cpu: bool, dtype: DTypeLike, rngs: nnx.Rngs):
        """Initialises the layers, which compute in `dtype`; `for_cpu` chooses the fast computation for CPUs."""
        self.kernels: nnx.List[nnx.Param] = nnx.List()
        self.biases: nnx.List[nnx.Param] = nnx.List()
        for inputs, outputs, side in self.SIZES:
            fan_in = side * side * inputs
            self.kernels.append(fan_in_uniform(rngs, (side, side, inputs, outputs), fan_in))
            self.biases.append(fan_in_uniform(rngs, (outputs,), fan_in))
        self.kernel = fan_in_uniform(rngs, (self.FLAT, self.FEATURES), self.FLAT)
        self.bias = fan_in_uniform(rngs, (self.FEATURES,), self.FLAT)
        self.for_cpu, self.dtype = for_cpu, dtype

    def table(self) -> jax.Array | None:
        """Returns the table of the first convolution for CPUs, else None; it depends only on the parameters."""
        return tile_table(self.kernels[0][...].astype(self.dtype)) if self.for_cpu else None

    def __call__(self, crop: jax.Array, table: jax.Array | None = None) -> jax.Array:
        """Encodes characters and colours. [N, 2, 12, 12] uint8 -> [N, 512]

        `table`: result of `table`, if already computed; only for calls that are not differentiated.
        """
        pairs = zip(self.kernels, self.biases, strict=True)
        weights = [(kernel[...].astype(self.dtype), bias[...].astype(self.dtype)) for kernel, bias in pairs]
        if table is not None:
            x = _forward(weights, crop, table)[0]
        else:
            x = convolve_looked_up(weights, crop) if self.for_cpu else convolve(weights, crop)
        x = x.transpose(0, 3, 1, 2).reshape(len(x), -1)  # channel by channel
        return elu(x @ self.kernel[...].astype(self.dtype) + self.bias[...].astype(self.dtype))


def convolve(weights: Weights, crop: jax.Array) -> jax.Array:
    """Applies three convolutions with ELU to the picture. [N, 2, 12, 12] uint8 -> [N, 3, 3, 128]"""
    with jax.named_scope("render"):
        x = render(crop).astype(weights[0][0].dtype) / WHITE
    names = "NHWC", "HWIO", "NHWC"
    for (kernel, bias), stride in zip(weights, STRIDES, strict=True):
        x = elu(jax.lax.conv_general_dilated(x, kernel, (stride, stride), "VALID", dimension_numbers=names) + bias)
    return x


@jax.custom_vjp
def convolve_looked_up(weights: Weights, crop: jax.Array) -> jax.Array:
    """Computes `convolve` with table look-ups; faster on CPUs."""
    return _forward(weights, crop)[0]


def _forward(weights: Weights, crop: jax.Array, table: jax.Array | None = None) -> tuple[jax.Array, Any]:
    first, second, third = _in_blocks(weights)
    with jax.named_scope("render"):
        table = tile_table(weights[0][0]) if table is None else table

    def chunk(_: None, crop: jax.Array) -> tuple[None, tuple[jax.Array, jax.Array]]:
        y2 = elu(_product(_first(table, first[1], tile_rows(crop)), *second, 1))
        return None, (y2, elu(_product(y2, *third, STRIDES[2])))

    _, (y2, y3) = jax.lax.scan(chunk, None, in_pieces(crop))
    out = y3.reshape(-1, *y3.shape[2:])[: len(crop)]
    return out, (weights, crop, table, y2, y3)


def _backward(saved: Any, gradient: jax.Array) -> tuple[Weights, None]:
    weights, crop, table, y2, y3 = saved
    first, second, third = _in_blocks(weights)

    def chunk(sums: Any, inputs: tuple[jax.Array, ...]) -> tuple[Any, None]:
        crop, y2, y3, g3 = inputs
        rows = tile_rows(crop)
        y1 = _first(table, first[1], rows)
        _, pull = jax.vjp(functools.partial(_product, stride=STRIDES[2]), y2, *third)
        g2, *of_third = pull(g3 * _slope(y3))
        _, pull = jax.vjp(functools.partial(_product, stride=1), y1, *second)
        g1, *of_second = pull(g2 * _slope(y2))
        g1 = (g1 * _slope(y1)).astype(jnp.float32).reshape(*rows.shape[1:], -1)
        # One addition: XLA would copy the whole table for a second one.
        of_table = sums[0].at[rows].add(jnp.broadcast_to(g1, (len(rows), *g1.shape)))
        gradients = g1.reshape(-1, g1.shape[-1]).sum(0), *of_second, *of_third
        return (of_table, *(a + b for a, b in zip(sums[1:], gradients, strict=True))), None

    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, jnp.float32), (table, first[1], *second, *third))
    sums, _ = jax.lax.scan(chunk, zeros, (in_pieces(crop), y2, y3, in_pieces(gradient)))
    of_table, of_bias, *rest = (x.astype(gradient.dtype) for x in sums)
    (of_kernel,) = jax.linear_transpose(tile_table, weights[0][0])(of_table.astype(jnp.float32))
    in_blocks = [(of_kernel, of_bias), (rest[0], rest[1]), (rest[2], rest[3])]
    return jax.linear_transpose(_in_blocks, weights)(in_blocks)[0], None


convolve_looked_up.defvjp(_forward, _backward)


def _first(table: jax.Array, bias: jax.Array, rows: jax.Array) -> jax.Array:
    total: jax.Array = sum((table[row] for row in rows[1:]), table[rows[0]])
    y = elu(total.astype(bias.dtype) + bias)  # [N, 256, 32]
    return y.reshape(len(y), 8, 8, -1)


def _in_blocks(weights: Weights) -> Weights:
    """Rewrites the second convolution, 4 x 4 with stride 2, for blocks of 2 x 2 places: [2, 2, 128, 64], stride 1."""
    first, (kernel, bias), third = weights
    side, _, inputs, outputs = kernel.shape
    kernel = kernel.reshape(side // 2, 2, side // 2, 2, inputs, outputs).swapaxes(1, 2)
    return [first, (kernel.reshape(side // 2, side // 2, 4 * inputs, outputs), bias), third]


def _product(x: jax.Array, kernel: jax.Array, bias: jax.Array, stride: int) -> jax.Array:
    """Convolves by a matrix product, for which XLA uses all CPU cores. -> [N, H', W', outputs]"""
    side, _, inputs, outputs = kernel.shape
    rows, columns = x.shape[1] - side + 1, x.shape[2] - side + 1
    x = jax.lax.optimization_barrier(x)  # otherwise XLA recomputes x for each of its slices
    seen = [x[:, i : i + rows : stride, j : j + columns : stride] for i in range(side) for j in range(side)]
    return jnp.concatenate(seen, -1) @ kernel.reshape(side * side * inputs, outputs) + bias


class Convolution(nnx.Conv):
    """A convolution with zeros around the edges, by a matrix product on CPUs."""

    def __init__(self, inputs: int, outputs: int, side: int, stride: int = 1, *, for_cpu: bool, **values: Any):
        """Initialises the kernel, side x side; `values`: as for `nnx.Conv`."""
        super().__init__(inputs, outputs, (side, side), stride, padding="SAME", **values)
        self.side, self.stride, self.for_cpu = side, stride, for_cpu

    def __call__(self, inputs: jax.Array) -> jax.Array:  # type: ignore[override]
        """[N, H, W, inputs] -> [N, H / stride, W / stride, outputs], rounded up"""
        if not self.for_cpu:
            return super().__call__(inputs)
        assert self.bias is not None
        rows, columns = inputs.shape[1:3]
        missing = [max((-(-size // self.stride) - 1) * self.stride + self.side - size, 0) for size in (rows, columns)]
        around = [(0, 0), *((less // 2, less - less // 2) for less in missing), (0, 0)]
        x, kernel, bias = (value.astype(self.dtype) for value in (inputs, self.kernel[...], self.bias[...]))
        return _product(jnp.pad(x, around), kernel, bias, self.stride)


def _slope(y: jax.Array) -> jax.Array:
    """Returns the derivative of ELU given its value y."""
    return jnp.where(y > 0, 1, y + 1)


def in_pieces(x: jax.Array, at_least: int = 1) -> jax.Array:
    """Splits a batch into pieces, the last padded with zeros. [N, ...] -> [K, M, ...], M at most FRAMES"""
    count = max(at_least, -(-len(x) // FRAMES))
    size = -(-len(x) // count)
    padding = [(0, count * size - len(x))] + [(0, 0)] * (x.ndim - 1)
    return jnp.pad(x, padding).reshape(count, size, *x.shape[1:])
