"""The game's screen as text for terminals: its colours, without anything that a terminal takes for a command."""

from __future__ import annotations

import unicodedata

import numpy as np

REVERSED = 16  # colours from here on have foreground and background swapped
BACKGROUND = (13, 17, 23)
PALETTE = (  # red, green and blue of the game's sixteen colours; dark ones are bright enough to be read
    (86, 95, 107), (224, 92, 92), (94, 178, 92), (190, 138, 70), (86, 134, 230), (187, 104, 200), (64, 178, 184),
    (190, 197, 206), (110, 119, 132), (255, 142, 88), (126, 222, 112), (244, 213, 92), (128, 180, 255),
    (236, 140, 240), (110, 226, 226), (250, 252, 255),
)  # fmt: skip
# Bytes that show nothing, or that a terminal takes for commands (0..31, 127..159, also in UTF-8), become blanks.
SHOWN = np.array([code if 32 <= code < 127 or (code > 160 and code != 173) else 32 for code in range(256)], np.uint8)


def printable(text: str) -> str:
    """Text as one line, in which each character takes one column; blanks replace all that do not, and commands."""
    return "".join(character if _is_plain(character) else " " for character in text)


def _is_plain(character: str) -> bool:
    if character.isascii():
        return character.isprintable()
    wide = unicodedata.east_asian_width(character) in ("W", "F")
    return character.isprintable() and not wide and unicodedata.category(character) not in ("Mn", "Me", "Cf")


def screen_text(chars: np.ndarray, colors: np.ndarray | None = None, cursor: tuple[int, int] | None = None) -> str:
    """A screen of character codes as text, with ANSI colours if `colors` are given. [rows, columns] each

    Colours from 16 on are reversed. `cursor`: row and column of the square to underline.
    """
    lines = []
    for row, codes in enumerate(SHOWN[chars]):
        line, style = [], ""
        for column, code in enumerate(codes):
            if colors is not None:
                color = int(colors[row, column])
                parts = ["1"] * bool(color & 8) + [f"3{color & 7}"] + ["7"] * (color >= REVERSED)
                parts += ["4"] * ((row, column) == cursor)
                now = f"\033[0;{';'.join(parts)}m"
                if now != style:
                    line.append(now)
                    style = now
            line.append(chr(code))
        lines.append("".join(line) + ("\033[0m" if style else ""))
    return "\n".join(lines)
