import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from motif_jax.networks.images import PALETTE, render, tile_atlas

pytestmark = pytest.mark.quick


def shrink(pixels: np.ndarray) -> np.ndarray:
    """[11, ...] -> [6, ...]: every row repeated 6 times, then the mean of each 11."""
    repeated = np.repeat(pixels.astype(np.float64), 6, axis=0)
    return np.rint(repeated.reshape(6, 11, *pixels.shape[1:]).mean(1)).astype(np.uint8)


def test_tiles_are_pillows_bitmap_font_shrunk_by_averaging():
    drawing, image, font = ImageDraw, Image, ImageFont.load_default_imagefont()
    line = "".join(chr(code) if chr(code).isprintable() else " " for code in range(256))
    atlas = tile_atlas()
    assert atlas.shape == (256, 16, 6, 6, 3)
    for color, name in enumerate(PALETTE):
        canvas = image.new("RGB", (256 * 6, 11))
        drawing.Draw(canvas).text((0, 0), line, fill=f"#{name}", font=font)
        strip = shrink(np.asarray(canvas)).reshape(6, 256, 6, 3)
        np.testing.assert_array_equal(atlas[:, color], strip.swapaxes(0, 1))


def test_every_cell_shows_its_own_tile_and_reversed_ones_as_if_they_were_not():
    rng = np.random.default_rng(0)
    crop = np.stack([rng.integers(0, 256, (3, 12, 12)), rng.integers(0, 32, (3, 12, 12))], 1).astype(np.uint8)
    image, atlas = np.asarray(render(crop)), tile_atlas()
    for frame, row, column in np.ndindex(3, 12, 12):
        code, color = crop[frame, :, row, column]
        cell = image[frame, 6 * row : 6 * row + 6, 6 * column : 6 * column + 6]
        np.testing.assert_array_equal(cell, atlas[code, color % 16])
