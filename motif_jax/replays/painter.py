"""Rasterises sheets of characters: draws every character once, in a few shades, and then copies it."""

from __future__ import annotations

import numpy as np

from motif_jax.replays.canvas import Canvas
from motif_jax.replays.strokes import HEIGHT, WIDTH, draw
from motif_jax.screens import BACKGROUND, PALETTE

SHADES = 7  # from the background to a full colour, for smooth edges
BLOCKS = "▁▂▃▄▅▆▇█"  # eighths of a cell; drawn here, because they must join exactly
RULES = {"─": "lr", "│": "tb", "┌": "br", "┐": "bl", "└": "tr", "┘": "tl"}  # lines to left, right, top, bottom


class Painter:
    """Draws sheets as arrays of indices into `colours`, [C, 3]."""

    def __init__(self) -> None:
        """Makes the table of colours."""
        self._numbers: dict[int, int] = {}  # index in `_glyphs` by character
        self._glyphs = np.zeros((0, HEIGHT, WIDTH), np.uint8)  # shades
        # Index 0 is the background, which all colours share; the other shades of each colour follow.
        self.colours = np.array(
            [BACKGROUND, *(_shade(color, level) for color in PALETTE for level in range(1, SHADES))]
        )
        shades = np.zeros((len(PALETTE), SHADES), np.uint8)
        shades[:, 1:] = 1 + np.arange(len(PALETTE) * (SHADES - 1)).reshape(len(PALETTE), -1)
        self._shades = np.concatenate([shades, shades[:, ::-1]])  # and reversed. [styles, SHADES]

    def paint(self, canvas: Canvas, rows: slice = slice(None), columns: slice = slice(None)) -> np.ndarray:
        """Draws a part of a sheet as indices into `colours`. [pixels down, pixels across] uint8"""
        chars, styles = canvas.chars[rows, columns], canvas.styles[rows, columns]
        known, where = np.unique(chars, return_inverse=True)
        numbers = np.array([self._number(int(code)) for code in known])[where].reshape(chars.shape)
        cells = self._shades[styles[..., None, None], self._glyphs[numbers]]  # [R, C, height, width]
        return cells.transpose(0, 2, 1, 3).reshape(chars.shape[0] * HEIGHT, chars.shape[1] * WIDTH)

    def _number(self, code: int) -> int:
        if code not in self._numbers:
            self._numbers[code] = len(self._glyphs)
            self._glyphs = np.concatenate([self._glyphs, _draw(chr(code))[None]])
        return self._numbers[code]


def _draw(character: str) -> np.ndarray:
    """The shades of a character's pixels. [HEIGHT, WIDTH] uint8"""
    if character in RULES:
        return _draw_rule(RULES[character])
    if character not in BLOCKS:
        return np.round(draw(character) * (SHADES - 1)).astype(np.uint8)
    glyph = np.zeros((HEIGHT, WIDTH), np.uint8)
    glyph[HEIGHT - round(HEIGHT * (BLOCKS.index(character) + 1) / len(BLOCKS)) :, :-1] = SHADES - 1
    return glyph


def _draw_rule(ways: str) -> np.ndarray:
    glyph = np.zeros((HEIGHT, WIDTH), np.uint8)
    down, across = HEIGHT // 2, WIDTH // 2
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
