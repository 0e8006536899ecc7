"""Sheets of characters as pictures: every character is drawn once, in a few shades, and then copied."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from motif_jax.replays.canvas import Canvas
from motif_jax.screens import BACKGROUND, PALETTE

FONT = "fonts/ttf/DejaVuSansMono.ttf"  # comes with matplotlib
SHADES = 7  # from the ground to a full colour, so that edges are smooth
BLOCKS = "▁▂▃▄▅▆▇█"  # eighths of a cell, drawn here because they shall meet their neighbours exactly
RULES = {"─": "lr", "│": "tb", "┌": "br", "┐": "bl", "└": "tr", "┘": "tl"}  # likewise: where lines go from the middle


class Painter:
    """Draws sheets as numbers of colours; `colours` says which."""

    def __init__(self, size: int):
        """Of a font of so many pixels."""
        import matplotlib

        self._font = ImageFont.truetype(str(Path(matplotlib.get_data_path()) / FONT), size)
        ascent, descent = self._font.getmetrics()
        self.cell = ascent + descent, round(self._font.getlength("M"))  # height and width in pixels
        self._numbers: dict[int, int] = {}  # of characters, in `_glyphs`
        self._glyphs = np.zeros((0, *self.cell), np.uint8)  # shades
        # Number 0 is the ground, for all colours; of each colour the other shades follow.
        self.colours = np.array(
            [BACKGROUND, *(_shade(color, level) for color in PALETTE for level in range(1, SHADES))]
        )
        shades = np.zeros((len(PALETTE), SHADES), np.uint8)
        shades[:, 1:] = 1 + np.arange(len(PALETTE) * (SHADES - 1)).reshape(len(PALETTE), -1)
        self._shades = np.concatenate([shades, shades[:, ::-1]])  # and reversed. [styles, SHADES]

    def paint(self, canvas: Canvas, rows: slice = slice(None), columns: slice = slice(None)) -> np.ndarray:
        """A part of a sheet. -> [pixels down, pixels across] uint8, numbers of colours"""
        chars, styles = canvas.chars[rows, columns], canvas.styles[rows, columns]
        known, where = np.unique(chars, return_inverse=True)
        numbers = np.array([self._number(int(code)) for code in known])[where].reshape(chars.shape)
        cells = self._shades[styles[..., None, None], self._glyphs[numbers]]  # [R, C, height, width]
        height, width = self.cell
        return cells.transpose(0, 2, 1, 3).reshape(chars.shape[0] * height, chars.shape[1] * width)

    def _number(self, code: int) -> int:
        if code not in self._numbers:
            self._numbers[code] = len(self._glyphs)
            self._glyphs = np.concatenate([self._glyphs, self._draw(chr(code))[None]])
        return self._numbers[code]

    def _draw(self, character: str) -> np.ndarray:
        height, width = self.cell
        if character in BLOCKS:
            glyph = np.zeros(self.cell, np.uint8)
            glyph[height - round(height * (BLOCKS.index(character) + 1) / len(BLOCKS)) :, :-1] = SHADES - 1
            return glyph
        if character in RULES:
            return self._draw_rule(RULES[character])
        image = Image.new("L", (width, height))
        ImageDraw.Draw(image).text((0, 0), character, fill=255, font=self._font)
        return np.round(np.asarray(image) / 255 * (SHADES - 1)).astype(np.uint8)

    def _draw_rule(self, ways: str) -> np.ndarray:
        height, width = self.cell
        glyph = np.zeros(self.cell, np.uint8)
        down, across = height // 2, width // 2
        if "l" in ways:
            glyph[down, : across + 1] = SHADES - 1
        if "r" in ways:
            glyph[down, across:] = SHADES - 1
        if "t" in ways:
            glyph[: down + 1, across] = SHADES - 1
        if "b" in ways:
            glyph[down:, across] = SHADES - 1
        return glyph


def _shade(color: tuple[int, int, int], level: int) -> tuple[int, ...]:
    part = level / (SHADES - 1)
    return tuple(round(ground + part * (full - ground)) for ground, full in zip(BACKGROUND, color, strict=True))
