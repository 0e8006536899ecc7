"""The viewer, which plays an episode in the terminal; each key maps a view of the episode to the next view.

It draws on the alternate screen, and always restores the terminal's mode.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator

import numpy as np

from motif_jax.replays.canvas import Canvas, changes
from motif_jax.replays.replay import Replay, Story, describe
from motif_jax.replays.scene import HELP, MESSAGES, View, compose, list_rows, listed_at_once

SPEEDS = (0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)  # steps per second
SAME_AS = {
    "l": "right", "h": "left", "+": "up", "=": "up", "-": "down", "g": "home", "G": "end", "enter": "escape",
}  # fmt: skip
ENTER = "\033[?1049h\033[?25l\033[?7l"  # another screen, no cursor, no line wrapping
LEAVE = "\033[0m\033[?7h\033[?25h\033[?1049l"
LOOK_EVERY_S = 0.25  # between checks of the window's size
DRAW_EVERY_S = 1 / 50  # shortest time between two frames
REST_OF_KEY_S = 0.05  # longest delay within a key's escape sequence
KEY = re.compile(rb"\033\[[0-?]*[ -/]*[@-~]|\033O[ -~]|\033|[\x00-\x7f]|[\x80-\xff]+")
UNFINISHED = re.compile(rb"\033(?:O|\[[0-?]*[ -/]*)?\Z")
PLAIN = ("", "dumb", "unknown")  # values of TERM without a screen
NAMES = {
    b"\033[A": "up", b"\033[B": "down", b"\033[C": "right", b"\033[D": "left", b"\033[H": "home", b"\033[F": "end",
    b"\033OA": "up", b"\033OB": "down", b"\033OC": "right", b"\033OD": "left", b"\033OH": "home", b"\033OF": "end",
    b"\033[1~": "home", b"\033[7~": "home", b"\033[4~": "end", b"\033[8~": "end",
    b"\033[5~": "page up", b"\033[6~": "page down", b"\033": "escape", b"\r": "enter", b"\n": "enter",
}  # fmt: skip


def can_watch() -> bool:
    """Whether input and output are a terminal with a screen."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "") not in PLAIN


def watch(replay: Replay, speed: float) -> Story:
    """Shows an episode until the user quits, at `speed` steps per second; returns its story."""
    story = describe(replay)
    view: View | None = View(playing=replay.steps > 0, speed=speed)
    sys.stdout.flush()
    with open_terminal(sys.stdin.fileno(), sys.stdout.fileno()) as terminal:
        since, start = time.monotonic(), 0  # frame `start` was shown at time `since`
        while view is not None:
            terminal.show(compose(story, view, *terminal.size(), keys=True))
            shown = view
            for key in terminal.keys(_wait(view, since, start)):
                rows, _ = terminal.size()
                view = press(view, key, story, list_rows(rows, keys=True))
                if view is None:
                    return story
            now = time.monotonic()
            if (view.playing, view.speed) != (shown.playing, shown.speed) or not view.playing:
                since, start = now, view.frame
            else:
                view = arrive(view, start + int((now - since) * view.speed), story)
    return story


def _wait(view: View, since: float, start: int) -> float:
    """Seconds until the next change."""
    if not view.playing:
        return LOOK_EVERY_S
    due = since + (view.frame + 1 - start) / view.speed
    return min(max(due - time.monotonic(), DRAW_EVERY_S), LOOK_EVERY_S)


class Terminal:
    """Draws on a terminal and reads its keys; `open_terminal` makes it."""

    def __init__(self, source: int, target: int):
        """Takes the file descriptors of keyboard and screen."""
        self._source, self._target = source, target
        self._shown: Canvas | None = None

    def size(self) -> tuple[int, int]:
        columns, rows = os.get_terminal_size(self._target)
        return max(rows, 1), max(columns, 1)  # some terminals report 0

    def show(self, canvas: Canvas) -> None:
        """Draws the changes since the last call."""
        before = self._shown
        if before is not None and (before.rows, before.columns) != (canvas.rows, canvas.columns):
            before = None
        self.write(changes(before, canvas))
        self._shown = canvas

    def write(self, text: str) -> None:
        """Writes all of the text, even to a slow terminal."""
        data = text.encode("utf-8", "replace")
        while data:
            data = data[os.write(self._target, data) :]

    def keys(self, timeout: float) -> list[str]:
        """The pressed keys; waits at most `timeout` seconds for the first."""
        data = b""
        while select.select([self._source], [], [], REST_OF_KEY_S if data else timeout)[0]:
            pressed = os.read(self._source, 1024)
            if not pressed:  # end of input
                return ["q"]
            data += pressed
            if not UNFINISHED.search(data):
                break
        return [name(key) for key in KEY.findall(data)]


def name(key: bytes) -> str:
    """The name of a key: a character, or a word of `NAMES`; "" for unknown keys."""
    if key in NAMES:
        return NAMES[key]
    return key.decode() if len(key) == 1 and key.isascii() and chr(key[0]).isprintable() else ""


@contextlib.contextmanager
def open_terminal(source: int, target: int) -> Iterator[Terminal]:
    """Prepares a terminal for drawing, and restores it on exit; takes the descriptors of keyboard and screen."""
    terminal = Terminal(source, target)
    before = termios.tcgetattr(source)
    try:
        tty.setcbreak(source)
        now = termios.tcgetattr(source)
        now[6][termios.VSUSP] = b"\0"  # no Ctrl-Z: it would leave the screen as it is
        termios.tcsetattr(source, termios.TCSADRAIN, now)
        terminal.write(ENTER)
        yield terminal
    finally:
        try:
            terminal.write(LEAVE)
        finally:
            termios.tcsetattr(source, termios.TCSADRAIN, before)


# ---- keys


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
    frame = {
        "right": view.frame + 1,
        "left": view.frame - 1,
        "home": 0,
        "end": last,
        "n": _rewarded_after(story, view.frame),
        "p": _rewarded_before(story, view.frame),
    }.get(key)
    return view if frame is None else view._replace(frame=min(max(frame, 0), last), playing=False)


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
