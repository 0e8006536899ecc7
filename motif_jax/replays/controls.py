"""The keys of the viewer: each maps a view of an episode to the next view."""

from __future__ import annotations

import numpy as np

from motif_jax.replays.lists import listed_at_once
from motif_jax.replays.scene import HELP, MESSAGES, View
from motif_jax.replays.story import Story

SPEEDS = (0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)  # steps per second
SAME_AS = {
    "l": "right", "h": "left", "+": "up", "=": "up", "-": "down", "g": "home", "G": "end", "enter": "escape",
}  # fmt: skip


def press(view: View, key: str, story: Story, rows: int) -> View | None:
    """Returns the view after a key; None: the user quits.

    `key`: a character, or one of left, right, up, down, home, end, page up, page down, escape, enter. `rows`: number of
    lines for the list of messages.
    """
    key = SAME_AS.get(key, key)
    if key == "q":
        return None
    if view.over:
        return _press_over(view, key, story, rows)
    last = story.replay.steps
    if key == " ":
        if not view.playing and view.frame == last:
            return view._replace(frame=0, playing=True)
        return view._replace(playing=not view.playing)
    if key in ("up", "down"):
        return view._replace(speed=_next_speed(view.speed, faster=key == "up"))
    if key in ("t", "?"):
        return view._replace(over=MESSAGES if key == "t" else HELP, scroll=0, playing=False)
    where = {
        "right": view.frame + 1,
        "left": view.frame - 1,
        "home": 0,
        "end": last,
        "n": _rewarded_after(story, view.frame),
        "p": _rewarded_before(story, view.frame),
    }.get(key)
    return view if where is None else view._replace(frame=min(max(where, 0), last), playing=False)


def arrive(view: View, frame: int, story: Story) -> View:
    """Returns the view when playing reaches a frame; at the end it stops and lists the messages."""
    if frame < story.replay.steps:
        return view._replace(frame=frame)
    return view._replace(frame=story.replay.steps, playing=False, over=MESSAGES, scroll=0)


def _press_over(view: View, key: str, story: Story, rows: int) -> View:
    at_once = listed_at_once(rows)
    moves = {"up": -1, "down": 1, "page up": -at_once, "page down": at_once, " ": at_once}
    if view.over == MESSAGES and key in (*moves, "home", "end"):
        last = max(len(story.top) - at_once, 0)
        where = {"home": 0, "end": last}.get(key, view.scroll + moves.get(key, 0))
        return view._replace(scroll=min(max(where, 0), last))
    if key in ("t", "?") and (key == "t") != (view.over == MESSAGES):
        return view._replace(over=MESSAGES if key == "t" else HELP, scroll=0)
    return view._replace(over="")


def _next_speed(speed: float, faster: bool) -> float:
    if faster:
        return min((other for other in SPEEDS if other > speed), default=speed)
    return max((other for other in SPEEDS if other < speed), default=speed)


def _rewarded_after(story: Story, frame: int) -> int | None:
    at = int(np.searchsorted(story.rewarded, frame, side="right"))
    return int(story.rewarded[at]) if at < len(story.rewarded) else None


def _rewarded_before(story: Story, frame: int) -> int | None:
    at = int(np.searchsorted(story.rewarded, frame, side="left"))
    return int(story.rewarded[at - 1]) if at else None
