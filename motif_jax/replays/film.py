"""The sequence of sheets of an exported episode, with their durations; for casts, GIFs and MP4s."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from motif_jax.replays.canvas import Canvas
from motif_jax.replays.scene import MESSAGES, View, compose, needed
from motif_jax.replays.story import Story

FASTEST = 50.0  # sheets per second; faster films skip steps
LAST_S = 2.0  # shortest duration of the last frame
PICTURE_ROWS = 22  # lines that a picture of the game takes
LIST_S = 6.0  # duration of the final list of messages


class Sheet(NamedTuple):
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


def film(story: Story, speed: float) -> Iterator[Sheet]:
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
        yield Sheet(canvas, frame / speed, seconds, picture)
    if story.top:
        start = last / speed + max(LAST_S, 1 / speed)
        yield Sheet(compose(story, View(last, False, speed, MESSAGES), rows, columns, keys=False), start, LIST_S)


def _frames(story: Story, speed: float) -> list[int]:
    last = story.replay.steps
    return [*range(0, last, _stride(speed)), last]


def _stride(speed: float) -> int:
    return math.ceil(speed / FASTEST)
