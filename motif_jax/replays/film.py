"""The sequence of sheets of an exported episode, with their durations, and its plainest form: a cast of text."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from motif_jax.files import write_whole
from motif_jax.replays.canvas import Canvas, changes
from motif_jax.replays.scene import MESSAGES, View, compose, needed
from motif_jax.replays.story import Story
from motif_jax.screens import BACKGROUND, PALETTE, printable

FASTEST = 50.0  # sheets per second; faster films skip steps
LAST_S = 2.0  # shortest duration of the last frame
PICTURE_ROWS = 22  # lines that a picture of the game takes
LIST_S = 6.0  # duration of the final list of messages


class TimedPicture(NamedTuple):
    """A picture of the film, with its time."""

    canvas: Canvas
    start: float  # seconds from the beginning
    seconds: float
    picture: bytes = b""  # of the game, in place of its screen, which is then blank


def with_room_for_pictures(story: Story) -> Story:
    """The story, with room for pictures if its replay has any."""
    return story if story.replay.pictures is None else story._replace(rows=PICTURE_ROWS, pictured=True)


def count_sheets(story: Story, speed: float) -> int:
    """The number of sheets of a film at `speed` steps per second."""
    return len(_frames(story, speed)) + bool(story.top)


def sheets_per_second(speed: float) -> float:
    """Sheets per second of a film at `speed` steps per second."""
    return speed / _stride(speed)


def film(story: Story, speed: float) -> Iterator[TimedPicture]:
    """Yields the sheets of an episode at `speed` steps per second, then its list of messages."""
    columns, rows = needed(story)
    last = story.replay.steps
    for frame in _frames(story, speed):
        canvas = compose(story, View(frame, frame < last, speed), rows, columns, keys=False)
        picture = story.replay.picture(frame) if story.pictured else b""
        if picture:
            canvas.clear(story.rows)
        following = min(frame + _stride(speed), last)
        seconds = (following - frame) / speed if frame < last else max(LAST_S, 1 / speed)
        yield TimedPicture(canvas, frame / speed, seconds, picture)
    if story.top:
        start = last / speed + max(LAST_S, 1 / speed)
        yield TimedPicture(compose(story, View(last, False, speed, MESSAGES), rows, columns, keys=False), start, LIST_S)


def write_cast(path: Path, story: Story, speed: float, progress: Callable[[int], None]) -> None:
    """Writes an asciinema cast, version 2, atomically; calls `progress` with the number of finished sheets.

    A cast is a header, then one line of JSON per change: https://docs.asciinema.org/manual/asciicast/v2/
    """
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


def _frames(story: Story, speed: float) -> list[int]:
    last = story.replay.steps
    return [*range(0, last, _stride(speed)), last]


def _stride(speed: float) -> int:
    return math.ceil(speed / FASTEST)


def _hex(color: tuple[int, int, int]) -> str:
    return "#{:02x}{:02x}{:02x}".format(*color)
