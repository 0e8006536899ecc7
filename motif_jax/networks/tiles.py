"""Draws the crop as the published agent's picture, on the network's device, or convolves it without drawing it.

Each terminal cell is a tile of 6 x 6 pixels: a glyph of 6 x 11 in one of 16 colours on black, shrunk by averaging.
The published tiles come from Pillow's bitmap font (Courier Bold 8 of the X Window System) and OpenCV. This file stores
the black and white glyphs and computes the same bytes (tests/networks/tiles_test.py) without either library. Licence of
the glyphs: third_party/README.md.

Colours from 16 on (reversed on the terminal; the published agent lacks them) are drawn as the colour minus 16.

`tile_table` computes the first convolution by look-ups instead of multiplications. The convolution covers 8 x 8 pixels
with stride 4. So each of its places covers 2 x 2 tiles, and its start in the first tile is 0, 4 or 2 pixels in turn: 3
phases along each axis. A tile's contribution depends only on the tile, the phases and its position among the four. The
table of these contributions, [contributions, outputs], is computed by one small matrix product; a place is then a sum
of four of its rows.

Each of a tile's red, green and blue planes is its glyph in one of three brightnesses or black. So the matrix product
computes planes, and the table of tiles sums planes. (Looking up planes would avoid this sum, but 12 rows per place take
longer.) The result equals the convolution up to the order of summation.
"""

from __future__ import annotations

import base64
import functools
import zlib
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

CHARACTERS, COLORS = 256, 16
TILE = 6  # pixels on a side
CELLS = 12  # tiles on a side
PIXELS = TILE * CELLS
GLYPH_ROWS = 11

# Dark, then bright; 7 and 8 are greys in the published order, and 0 is invisible.
PALETTE: tuple[str, ...] = ("000000", "800000", "008000", "808000", "000080", "800080", "008080", "808080")
PALETTE += ("C0C0C0", "FF0000", "00FF00", "FFFF00", "0000FF", "FF00FF", "00FFFF", "FFFFFF")

# Black and white glyphs, [256, 11, 6] bits. They are cut from one drawn line of all characters, in which a glyph may
# reach into its neighbour's cell, so drawing single characters would give different glyphs.
GLYPHS = (
    "c-rk%?{5=z7=P|My9?gdM*HG2&d~xAVn}S+QnsY52MLI89ELYUeBs%cidk*9C0h-QopW?UiJj3H9b+#HA)yYk%y=ZEZZ}S<#+7N}i<Xm6{P6"
    "~<DXsEr7=51am56Wr3%I0xzIXTO^Ld`n_xXMb@bLQY<&;!S!pQCLuzSy*Up;qr0F2GuxT;q)aJ-%MUAsttCF$<61|a(EA98}4lDrCVyy!Ot1"
    "z=rnz5T|U9{1i)?;oY_+yBzxhZnX9z6OBCpcT^-_+S|`gfaH3M<a2hkPA^~(LjoK_r-Hqoa1_^us=(Ho{$yA*j0##szw=#dCI`$^<->{5lD="
    "Jh`3R#LX0>?b{}#Wtm?O%0gV=Y5s9M=n<q0TFW@WJi+jpv@wp?Pwc-RA?(rAD!?+cT`~#z_QfpcOR*cz9fWe-wVg=(CtE~S>07?DuAW_uBxr"
    "?X=TzM{J&0_2{#o#@R!cFVir<CE)Ije_?7>wzRB4ow=C5(*&R_r+So7ZcvQ@O+8=3^AY`%@B8HQlsWn~tFmde2i0XEO7>MAeowTffFA)^I_9"
    "a$QN>BXta^z1w)fjhkhn)FLY8%WDq|K^UBZ+g`fmVwu`BT|rw1E<a0q;Yb~b>C_&`)^(!jOn;=NF$u?=){9rOAo^=Dy?`%_kiDDjF5)VI-;8"
    "(EkkTc#n<ATpt#>mSijU#|P#N51y=ZW_zzj9gcC{6oriPm?t7%rl@2zV}G^>B5S~`Gf9-9Uxh^+&EZvG9@0m?tO7C<4uD{_Q3WrpeC^yftXq"
    "DDfD2wt3OrxZv@B&~Dip$Gi$C2=@H8hFR%7Jm`|nqN(iM`>8s_CB+gCary;tw!^J!UAdwt<N5LY;!j`Nj<@rr%(QH6k}q8cF=Z?FJ_9f%oe;"
    "44k2`|o;me6J*f)JKb-4dvS0ARZLJGqV7tujW$(_q1vS)vii5N;0&plZx$%=@_kE^*A($Hx5^Nn<rzB}SI6i;r5^lfn^825k!LE4eM0r;V0q"
    "385>V*oc$`AunQ;HVq?Z(qBC@z`&f%iDR@~p%R?iAd(&}AinQ*40rUK#<nNRV3tRm-Rw$oG<>g}+_G<Bu7tWFQS29rv<k+<;ZE^0eP70aB=R"
    "x)C6$sSp8j5{>;T_%pRPVq4G*T2RYGQ}ws94h;g@9ogV0^rL|o;8SE~q%9NVsOS%#Iso9vcF#B+>?hEp65#gQ2EqxBAqF@MS6Bv4*}^jLZn2"
    "s)*H9OD{FmrN^>=@^jN9-g^hI?vF}EgvO#UG3ZrpGHyKtW1zL~c0s6Ju?#9fAby!<yio0E6m(dq`WC~-XW$7hr1Jaq%X48fH~ja56pSR#sqD"
    "cTgwKoB7Mmkk1#Vp|0qJ2wrp|BKg@O;!xO+U>=Du?yaf{gOu=CP5fLwtaH94Zs<2X>6qU!MNTBsJU$*f`WoXHQLr8y;!0yP!OCD_e78kWCCq"
    ")0L}RqAi(pvj(-6BGPYX"
)

SIDE, STRIDE = 8, 4
PLACES = 16  # along an axis; the second convolution does not read the 17th
PHASES = 3
PARTS = (PHASES * 2) ** 2  # (phase, first or second tile) down, then across
WHITE = 255  # value of a white pixel
RGB = 3


@functools.cache
def tile_atlas() -> np.ndarray:
    """Draws all tiles. [256, 16, 6, 6, 3] uint8"""
    bits = np.frombuffer(zlib.decompress(base64.b85decode(GLYPHS)), np.uint8)
    glyphs = np.unpackbits(bits).reshape(CHARACTERS, GLYPH_ROWS, TILE)
    # A tile's row i averages the glyph's rows that it covers. In 66ths of the height, row i is [11 i, 11 i + 11), the
    # glyph's row j is [6 j, 6 j + 6).
    i, j = np.arange(TILE)[:, None], np.arange(GLYPH_ROWS)
    top, bottom = np.maximum(GLYPH_ROWS * i, TILE * j), np.minimum(GLYPH_ROWS * (i + 1), TILE * (j + 1))
    overlap = np.maximum(bottom - top, 0)  # [6, 11]
    elevenths = np.einsum("ij,cjx->cix", overlap, glyphs)  # [256, 6, 6], 0..11
    palette = np.array([list(bytes.fromhex(color)) for color in PALETTE])  # [16, 3]
    ink = palette[None, :, None, None, :] * elevenths[:, None, :, :, None]
    return ((2 * ink + GLYPH_ROWS) // (2 * GLYPH_ROWS)).astype(np.uint8)  # to the nearest; elevenths cannot tie


def tile_indices(crop: jax.Array) -> jax.Array:
    """Returns a crop's indices into the flattened atlas. [..., 2, 12, 12] uint8 -> [..., 12, 12] int32"""
    crop = crop.astype(jnp.int32)
    return crop[..., 0, :, :] * COLORS + crop[..., 1, :, :] % COLORS


def render(crop: jax.Array) -> jax.Array:
    """Draws crops. [N, 72, 72, 3] uint8

    `crop`: characters and colours. [N, 2, 12, 12] uint8
    """
    atlas = jnp.asarray(tile_atlas().reshape(-1, TILE, TILE, 3))
    tiles = atlas[tile_indices(crop)]  # [N, 12, 12, 6, 6, 3]
    return tiles.swapaxes(2, 3).reshape(-1, PIXELS, PIXELS, 3)


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
    parts = inks()
    outputs = kernel.shape[-1]
    planes = plane_table(kernel).reshape(*parts.planes.shape[:2], RGB, PARTS * outputs)
    black = jnp.zeros_like(planes[:, 0, 0])
    tiles = [
        sum((planes[:, parts.brightness[color, i], i] for i in range(RGB) if parts.present[color, i]), black)
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
