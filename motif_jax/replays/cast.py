"""Writes an episode as an asciinema cast, version 2: a header, then one line of JSON per change.

https://docs.asciinema.org/manual/asciicast/v2/
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from motif_jax.replays.canvas import Canvas, changes
from motif_jax.replays.film import film
from motif_jax.replays.scene import needed
from motif_jax.replays.story import Story
from motif_jax.screens import BACKGROUND, PALETTE, printable
from motif_jax.system.files import write_whole


def write_cast(path: Path, story: Story, speed: float, progress: Callable[[int], None]) -> None:
    """Writes a cast atomically; calls `progress` with the number of finished sheets."""
    columns, rows = needed(story)
    theme = {"fg": _hex(PALETTE[7]), "bg": _hex(BACKGROUND)}
    theme["palette"] = ":".join(_hex(color) for color in (BACKGROUND, *PALETTE[1:]))
    header = {
        "version": 2, "width": columns, "height": rows, "title": printable(story.replay.title),
        "env": {"TERM": "xterm-256color"}, "theme": theme,
    }  # fmt: skip
    lines = [json.dumps(header)]
    before: Canvas | None = None
    end = 0.0
    for number, sheet in enumerate(film(story, speed), 1):
        text = changes(before, sheet.canvas)
        if text:
            lines.append(json.dumps([round(sheet.start, 3), "o", ("" if before else "\033[?25l") + text]))
        before, end = sheet.canvas, sheet.start + sheet.seconds
        progress(number)
    lines.append(json.dumps([round(end, 3), "o", "\033[?25h"]))  # the end of the last sheet
    write_whole(path, lambda file: file.write("".join(f"{line}\n" for line in lines).encode()))


def _hex(color: tuple[int, int, int]) -> str:
    return "#{:02x}{:02x}{:02x}".format(*color)
