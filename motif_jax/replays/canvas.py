"""A grid of coloured characters (a sheet), for terminal, casts and pictures."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from motif_jax.screens import REVERSED, SHOWN, printable

TEXT, WHITE, SOFT, GOOD, BAD, WARM, COOL = 7, 15, 8, 10, 9, 11, 14  # colours of everything except the game
SAME_RUN = 4  # columns from one change to the next that are written through: moving the cursor takes more bytes

Span = tuple[str, int]  # a piece of text and its style


class Canvas:
    """Characters and their styles: colours 0..15, plus 16 for reversed."""

    def __init__(self, rows: int, columns: int):
        self.rows, self.columns = rows, columns
        self.chars = np.full((rows, columns), ord(" "), np.uint32)
        self.styles = np.full((rows, columns), TEXT, np.uint8)

    def put(self, row: int, column: int, text: str, style: int = TEXT, width: int | None = None) -> int:
        """Writes text from any source, cut at `width` and at the edge; returns the column after it."""
        room = self.columns - column if width is None else min(width, self.columns - column)
        if not 0 <= row < self.rows or room <= 0:
            return column
        shown = printable(text)
        if len(shown) > room:
            shown = shown[: room - 1] + "…"
        self.chars[row, column : column + len(shown)] = [ord(character) for character in shown]
        self.styles[row, column : column + len(shown)] = style
        return column + len(shown)

    def put_spans(self, row: int, column: int, spans: Iterable[Span], width: int | None = None) -> int:
        """Writes spans one after another; returns the column after them."""
        end = self.columns if width is None else column + width
        for text, style in spans:
            column = self.put(row, column, text, style, end - column)
        return column

    def put_screen(self, chars: np.ndarray, colors: np.ndarray, cursor: tuple[int, int]) -> None:
        """Draws lines of the game in the upper left corner, cropped to the sheet. [R, 80] each

        `colors` are 0..15, from 16 on reversed. `cursor`: row and column of the reversed square.
        """
        rows, columns = min(self.rows, chars.shape[0]), min(self.columns, chars.shape[1])
        self.chars[:rows, :columns] = SHOWN[chars[:rows, :columns]]
        plain = (colors < REVERSED) & (SHOWN[chars] == ord(" ")) | (colors >= 2 * REVERSED)  # a blank has no colour
        self.styles[:rows, :columns] = np.where(plain, TEXT, colors)[:rows, :columns]
        row, column = cursor
        if 0 <= row < rows and column < columns:
            style = int(self.styles[row, column])
            self.styles[row, column] = (style if style % REVERSED else TEXT) ^ REVERSED

    def clear(self, rows: int) -> None:
        self.chars[:rows], self.styles[:rows] = ord(" "), TEXT

    def reverse(self, row: int, column: int) -> None:
        if 0 <= row < self.rows and 0 <= column < self.columns:
            self.styles[row, column] ^= REVERSED

    def text(self) -> list[str]:
        return ["".join(map(chr, line)) for line in self.chars]


def changes(before: Canvas | None, after: Canvas) -> str:
    """The escape sequences that turn a terminal's contents from `before` (None: unknown) into `after`."""
    if before is None:
        changed = np.ones(after.chars.shape, bool)
        parts = ["\033[0;37;40m\033[2J"]
    else:
        changed = (before.chars != after.chars) | (before.styles != after.styles)
        parts = []
    style = -1
    for row in np.flatnonzero(changed.any(1)):
        codes, styles = after.chars[row].tolist(), after.styles[row].tolist()
        columns = np.flatnonzero(changed[row])
        for run in np.split(columns, np.flatnonzero(np.diff(columns) > SAME_RUN) + 1):
            parts.append(f"\033[{row + 1};{run[0] + 1}H")
            for column in range(run[0], run[-1] + 1):
                if styles[column] != style:
                    style = styles[column]
                    parts.append(_sgr(style))
                parts.append(chr(codes[column]))
    if style >= 0:
        parts.append("\033[0m")
    return "".join(parts)


def _sgr(style: int) -> str:
    """The escape sequence of a style, always on black, for which the game's colours are made."""
    color = style % REVERSED or 8  # black on black would be invisible
    code = 30 + color if color < 8 else 90 + color - 8
    return f"\033[0;{code};40{';7' * (style >= REVERSED)}m"
