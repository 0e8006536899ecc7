"""The game in a terminal."""

from __future__ import annotations

import numpy as np

REVERSED = 16  # colours from here on have foreground and background swapped


def screen_text(chars: np.ndarray, colors: np.ndarray | None = None, cursor: tuple[int, int] | None = None) -> str:
    """A screen as text, with ANSI colours if `colors` are given.

    Args:
      chars: [rows, columns] character codes.
      colors: [rows, columns] 0..15, from 16 on reversed.
      cursor: row and column of the square to underline.
    """
    lines = []
    for row, codes in enumerate(chars):
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
            line.append(chr(code) if code >= ord(" ") else " ")
        lines.append("".join(line) + ("\033[0m" if style else ""))
    return "\n".join(lines)
