"""A terminal to look at in tests: what pyte makes of the bytes that were sent to it."""

from __future__ import annotations

import pyte

from motif_jax.replays.scene import Canvas
from motif_jax.screens import REVERSED

COLORS = ("black", "red", "green", "brown", "blue", "magenta", "cyan", "white")


class Emulator:
    """Takes text with escape sequences, and says what is to be seen then."""

    def __init__(self, rows: int, columns: int):
        self._screen = pyte.Screen(columns, rows)
        self._stream = pyte.Stream(self._screen)

    def feed(self, text: str) -> None:
        self._stream.feed(text)

    @property
    def lines(self) -> list[str]:
        return list(self._screen.display)

    def style(self, row: int, column: int) -> int:
        """Colour and reversal, as the game numbers them."""
        cell = self._screen.buffer[row][column]
        color = COLORS.index(cell.fg.removeprefix("bright")) + 8 * cell.fg.startswith("bright")
        return color + REVERSED * cell.reverse

    def assert_shows(self, canvas: Canvas) -> None:
        """Character by character and colour by colour."""
        assert self.lines == canvas.text()
        for row in range(canvas.rows):
            for column in range(canvas.columns):
                style = int(canvas.styles[row, column])
                assert self.style(row, column) == (style if style % REVERSED else style + 8)  # black is shown as grey
