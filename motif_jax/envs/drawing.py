"""Draws screens of 24 x 80 characters from rows of text with colours."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from motif_jax.envs.world import SCREEN_SHAPE, Screen

WHITE, GREY = 15, 7
LAST = SCREEN_SHAPE[0] - 1, SCREEN_SHAPE[1] - 1  # row and column
Pieces = list[tuple[str, int]]  # of a row: texts with colours 0..15, or 16..31 for the same reversed
ScreenRow = str | Sequence[tuple[str, int]]  # text, or pieces of text with their colours


def draw_screen(message: str, drawn: Sequence[Pieces]) -> Screen:
    """Draws a message in the first two rows, and centred rows below.

    Args:
      message: up to 160 characters in Latin-1; other characters become "?".
      drawn: up to 21 rows; the widest is centred, the others are aligned with its left end.
    """
    columns = SCREEN_SHAPE[1]
    widest = max((sum(len(text) for text, _ in pieces) for pieces in drawn), default=0)
    margin = (" " * ((columns - widest) // 2), GREY)
    lines = [[(message[:columns], WHITE)], [(message[columns : 2 * columns], WHITE)], []]
    return fill_screen([*lines, *([margin, *pieces] for pieces in drawn)])


def fill_screen(drawn: Sequence[Pieces], cursor: tuple[int, int] = LAST) -> Screen:
    """Draws rows from the first on; what does not fit on the screen is left out."""
    chars, colors = np.full(SCREEN_SHAPE, ord(" "), np.uint8), np.zeros(SCREEN_SHAPE, np.uint8)
    for number, pieces in enumerate(drawn[: len(chars)]):
        at = 0
        for text, color in pieces:
            codes = np.frombuffer(text.encode("latin-1", "replace")[: SCREEN_SHAPE[1] - at], np.uint8)
            chars[number, at : at + len(codes)] = codes
            colors[number, at : at + len(codes)] = color
            at += len(codes)
    return Screen(chars, colors, np.array(cursor, np.uint8))
