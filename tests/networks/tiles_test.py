import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from motif_jax.networks.images import PALETTE, render, tile_atlas

pytestmark = pytest.mark.quick


def test_tiles_are_pillows_bitmap_font_shrunk_by_averaging():
    line = "".join(chr(code) if chr(code).isprintable() else " " for code in range(256))
    atlas = tile_atlas()
    assert atlas.shape == (256, 16, 6, 6, 3)
    for color, name in enumerate(PALETTE):
        canvas = Image.new("RGB", (256 * 6, 11))
        ImageDraw.Draw(canvas).text((0, 0), line, fill=f"#{name}", font=ImageFont.load_default_imagefont())
        rows = np.repeat(np.asarray(canvas).astype(np.float64), 6, axis=0)  # 11 rows become 6 means of 11 sixths each
        strip = np.rint(rows.reshape(6, 11, 256, 6, 3).mean(1)).astype(np.uint8)
        np.testing.assert_array_equal(atlas[:, color], strip.swapaxes(0, 1))


def test_every_cell_shows_its_own_tile_and_reversed_ones_as_if_they_were_not():
    rng = np.random.default_rng(0)
    crop = np.stack([rng.integers(0, 256, (3, 12, 12)), rng.integers(0, 32, (3, 12, 12))], 1).astype(np.uint8)
    image, atlas = np.asarray(render(crop)), tile_atlas()
    for frame, row, column in np.ndindex(3, 12, 12):
        code, color = crop[frame, :, row, column]
        cell = image[frame, 6 * row : 6 * row + 6, 6 * column : 6 * column + 6]
        np.testing.assert_array_equal(cell, atlas[code, color % 16])
