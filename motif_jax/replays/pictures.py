"""Writes an episode as an animated GIF, whose frames contain only the changes."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from PIL import GifImagePlugin, Image

from motif_jax.files import write_whole
from motif_jax.replays.bitmaps import paste
from motif_jax.replays.canvas import Canvas
from motif_jax.replays.film import film, with_room_for_pictures
from motif_jax.replays.painter import HEIGHT, WIDTH, Painter
from motif_jax.replays.scene import needed
from motif_jax.replays.story import Story

TABLE_BITS = 7  # log2 of the size of the global table of colours
OWN_COLOURS = 128  # size of the local table of a sheet with a picture of the game
KEEP_BELOW = 1  # GIF disposal method: keep the previous picture


def write_gif(path: Path, story: Story, speed: float, progress: Callable[[int], None]) -> None:
    """Writes a GIF atomically; calls `progress` with the number of finished sheets."""
    write_whole(path, lambda file: _write(file, story, speed, progress))


def _write(file: BinaryIO, story: Story, speed: float, progress: Callable[[int], None]) -> None:
    painter, story = Painter(), with_room_for_pictures(story)
    columns, rows = needed(story)
    height, width = rows * HEIGHT, columns * WIDTH
    colours = np.zeros((2**TABLE_BITS, 3), np.uint8)
    colours[: len(painter.colours)] = painter.colours
    unchanged = len(painter.colours)  # this colour is transparent
    file.write(b"GIF89a" + struct.pack("<HHBBB", width, height, 0xF0 | TABLE_BITS - 1, 0, 0) + colours.tobytes())
    file.write(b"\x21\xff\x0bNETSCAPE2.0\x03\x01" + struct.pack("<H", 0) + b"\0")  # repeat for ever
    before: Canvas | None = None
    pictured = b""  # the previous sheet's picture of the game
    shown = 0  # hundredths of a second since the start; rounding errors of durations would add up
    for number, sheet in enumerate(film(story, speed), 1):
        end = round(100 * (sheet.start + sheet.seconds))
        facts: dict[str, Any] = {"duration": 10 * (end - shown), "disposal": KEEP_BELOW}
        if sheet.picture != pictured:
            before = None  # draw the whole sheet again
        if sheet.picture and sheet.picture != pictured:
            pixels = colours[painter.paint(sheet.canvas)]
            picture = Image.fromarray(paste(pixels, sheet.picture, story.rows * HEIGHT)).quantize(OWN_COLOURS)
            blocks = GifImagePlugin.getdata(picture, (0, 0), include_color_table=True, **facts)
        else:
            pixels, corner = _changed(painter, before, sheet.canvas, unchanged)
            blocks = GifImagePlugin.getdata(Image.fromarray(pixels), corner, transparency=unchanged, **facts)
        file.writelines(blocks)
        before, shown, pictured = sheet.canvas, end, sheet.picture
        progress(number)
    file.write(b";")


def _changed(
    painter: Painter, before: Canvas | None, after: Canvas, unchanged: int
) -> tuple[np.ndarray, tuple[int, int]]:
    """The smallest part of the picture with all changes, and the position of its upper left corner."""
    if before is None:
        return painter.paint(after), (0, 0)
    changed = (before.chars != after.chars) | (before.styles != after.styles)
    if not changed.any():
        changed[0, 0] = True  # a picture cannot be empty
    rows, columns = (np.flatnonzero(changed.any(axis)) for axis in (1, 0))
    down, across = slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1)
    pixels = painter.paint(after, down, across)
    pixels[~np.kron(changed[down, across], np.ones((HEIGHT, WIDTH), bool))] = unchanged
    return pixels, (int(columns[0]) * WIDTH, int(rows[0]) * HEIGHT)
