"""Computes the first convolution over a picture of tiles by table look-ups instead of multiplications.

The convolution covers 8 x 8 pixels with stride 4, the tiles have 6 x 6. So each of its places covers 2 x 2 tiles, and
its start in the first tile is 0, 4 or 2 pixels in turn: 3 phases along each axis. A tile's contribution depends only on
the tile, the phases and its position among the four. The table of these contributions, [contributions, outputs], is
computed by one small matrix product; a place is then a sum of four of its rows.

A tile is one glyph in one colour, and each of its red, green and blue planes is this glyph in one of three brightnesses
or black. So the matrix product computes planes, and the table of tiles sums planes. (Looking up planes would avoid this
sum, but 12 rows per place take longer.) The result equals the convolution up to the order of summation.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.networks.tiles import CELLS, COLORS, PALETTE, TILE, tile_atlas

SIDE, STRIDE = 8, 4
PLACES = 16  # along an axis; the second convolution does not read the 17th
PHASES = 3
PARTS = (PHASES * 2) ** 2  # (phase, first or second tile) down, then across
WHITE = 255  # value of a white pixel
RGB = 3


class Inks(NamedTuple):
    """Components of the tile atlas: up to 189 glyphs, the first blank, in 3 brightnesses."""

    glyph: np.ndarray  # [256]: glyph number of each character
    brightness: np.ndarray  # [16, 3]: of a colour's red, green and blue; arbitrary where not `present`
    present: np.ndarray  # [16, 3] bool
    planes: np.ndarray  # [glyphs, 3, 36] float32: pixels of a glyph in a brightness, 0..1


@functools.cache
def inks() -> Inks:
    """Splits the tile atlas into its components."""
    palette = np.array([list(bytes.fromhex(color)) for color in PALETTE])  # [16, 3]
    values = np.unique(palette)[1:]  # the first is black
    greys = [int(np.flatnonzero((palette == value).all(1))[0]) for value in values]  # colours with R = G = B = value
    planes = tile_atlas()[..., 0][:, greys].reshape(-1, len(values) * TILE * TILE)
    planes, glyph = np.unique(planes, axis=0, return_inverse=True)
    brightness = np.searchsorted(values, palette)
    planes = planes.reshape(-1, len(values), TILE * TILE).astype(np.float32) / WHITE
    return Inks(glyph.reshape(-1), brightness, palette > 0, planes)


def plane_table(kernel: jax.Array) -> jax.Array:
    """Computes planes' contributions. [8, 8, 3, outputs] -> [glyphs * 3 brightnesses * RGB * PARTS, outputs] float32"""
    planes = jnp.asarray(inks().planes.reshape(-1, TILE * TILE))
    outputs = kernel.shape[-1]
    # The kernel at each position relative to a tile, zero outside.
    border = (TILE - 2, TILE - 2)
    padded = jnp.pad(kernel.astype(jnp.float32), (border, border, (0, 0), (0, 0)))
    starts = [TILE - 2 + TILE * tile - 2 * phase for phase in range(PHASES) for tile in (0, 1)]
    padded = jnp.stack([padded[start : start + TILE] for start in starts])  # [6, 6, 16, 3, outputs]
    padded = jnp.stack([padded[:, :, start : start + TILE] for start in starts], 1)  # [6, 6, 6, 6, 3, outputs]
    seen = padded.reshape(PARTS, TILE * TILE, RGB, outputs).transpose(1, 2, 0, 3).reshape(TILE * TILE, -1)
    return (planes @ seen).reshape(-1, outputs)


def tile_table(kernel: jax.Array) -> jax.Array:
    """Computes tiles' contributions. [8, 8, 3, outputs] -> [glyphs * COLORS * PARTS, outputs] float32"""
    made = inks()
    outputs = kernel.shape[-1]
    planes = plane_table(kernel).reshape(*made.planes.shape[:2], RGB, PARTS * outputs)
    black = jnp.zeros_like(planes[:, 0, 0])
    tiles = [
        sum((planes[:, made.brightness[color, i], i] for i in range(RGB) if made.present[color, i]), black)
        for color in range(COLORS)
    ]
    return jnp.stack(tiles, 1).reshape(-1, outputs)


def tile_rows(crop: jax.Array) -> jax.Array:
    """Returns the rows of `tile_table` whose sum is the convolution. [N, 2, 12, 12] uint8 -> [4, N, 256] int32"""
    return _rows(jnp.asarray(inks().glyph)[crop[:, 0]] * COLORS + crop[:, 1] % COLORS)


def look_up(table: jax.Array, rows: jax.Array) -> jax.Array:
    """Sums K rows of a table. [R, outputs] and [K, N, ...] -> [N, ..., outputs]"""
    return sum((table[row] for row in rows[1:]), table[rows[0]])


def _rows(cells: jax.Array) -> jax.Array:
    """Maps kinds of cells, [N, 12, 12], to rows of a table of [kinds * PARTS, outputs], [4, N, 256].

    The places are ordered in blocks of 2 x 2 for the next convolution.
    """
    start = STRIDE * np.arange(PLACES)
    phase, tile = start % TILE // 2, start // TILE
    rows = []
    for down in (0, 1):
        for across in (0, 1):
            cell = (tile + down)[:, None] * CELLS + tile + across  # [16, 16]
            part = (2 * phase + down)[:, None] * (2 * PHASES) + 2 * phase + across  # [16, 16]
            cell, part = (x.reshape(8, 2, 8, 2).swapaxes(1, 2).reshape(-1) for x in (cell, part))
            rows.append(cells.reshape(len(cells), -1)[:, cell] * PARTS + part)
    return jnp.stack(rows).astype(jnp.int32)
