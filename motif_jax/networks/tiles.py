"""Draws the crop as the published agent's picture, on the network's device.

Each terminal cell is a tile of 6 x 6 pixels: a glyph of 6 x 11 in one of 16 colours on black, shrunk by averaging.
The published tiles come from Pillow's bitmap font (Courier Bold 8 of the X Window System) and OpenCV. This file stores
the black and white glyphs and computes the same bytes (tests/networks/tiles_test.py) without either library. Licence of
the glyphs: third_party/README.md.

Colours from 16 on (reversed on the terminal; the published agent lacks them) are drawn as the colour minus 16.
"""

from __future__ import annotations

import base64
import functools
import zlib

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
    """Draws crops.

    Args:
      crop: characters and colours. [N, 2, 12, 12] uint8

    Returns:
      [N, 72, 72, 3] uint8
    """
    atlas = jnp.asarray(tile_atlas().reshape(-1, TILE, TILE, 3))
    tiles = atlas[tile_indices(crop)]  # [N, 12, 12, 6, 6, 3]
    return tiles.swapaxes(2, 3).reshape(-1, PIXELS, PIXELS, 3)
