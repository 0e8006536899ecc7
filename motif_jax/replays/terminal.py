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
            due = (since + (view.frame + 1 - start) / view.speed - time.monotonic()) if view.playing else LOOK_EVERY_S
            shown = view
            for key in terminal.keys(min(max(due, DRAW_EVERY_S), LOOK_EVERY_S)):
                view = press(view, key, story, listed_at_once(list_rows(terminal.size()[0], keys=True)))
                if view is None:
                    return story
            now = time.monotonic()
            if (view.playing, view.speed) != (shown.playing, shown.speed) or not view.playing:
                since, start = now, view.frame
                continue
            frame = start + int((now - since) * view.speed)
            if frame < replay.steps:
                view = view._replace(frame=frame)
            else:  # playing stops, and the messages are listed
                view = view._replace(frame=replay.steps, playing=False, over=MESSAGES, scroll=0)
    return story


class Terminal:
    """Draws on a terminal and reads its keys; `open_terminal` makes it."""

    def __init__(self, source: int, target: int):
        self._source, self._target = source, target
        self._shown: Canvas | None = None

    def size(self) -> tuple[int, int]:
        columns, rows = os.get_terminal_size(self._target)
        return max(rows, 1), max(columns, 1)  # some terminals report 0

    def show(self, canvas: Canvas) -> None:
        """Draws the changes since the last call."""
        resized = self._shown is None or self._shown.chars.shape != canvas.chars.shape
        self.write(changes(None if resized else self._shown, canvas))
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


def press(view: View, key: str, story: Story, at_once: int) -> View | None:
    """The view after a key, a character or one of NAMES; None: the user quits. `at_once`: messages in the list."""
    key = SAME_AS.get(key, key)
    if key == "q":
        return None
    lists = {"t": MESSAGES, "?": HELP}
    if view.over:
        moves = {"up": -1, "down": 1, "page up": -at_once, "page down": at_once, " ": at_once}
        if view.over == MESSAGES and key in (*moves, "home", "end"):
            last = max(len(story.top) - at_once, 0)
            where = {"home": 0, "end": last}.get(key, view.scroll + moves.get(key, 0))
            return view._replace(scroll=min(max(where, 0), last))
        over = lists.get(key, "")
        return view._replace(over=over, scroll=0) if over and over != view.over else view._replace(over="")
    last, rewarded = story.replay.steps, story.rewarded
    if key == " ":
        again = not view.playing and view.frame == last
        return view._replace(frame=0 if again else view.frame, playing=not view.playing)
    if key in ("up", "down"):
        faster, slower = [speed for speed in SPEEDS if speed > view.speed], [one for one in SPEEDS if one < view.speed]
        return view._replace(speed=([*faster, view.speed][0] if key == "up" else [view.speed, *slower][-1]))
    if key in lists:
        return view._replace(over=lists[key], scroll=0, playing=False)
    frame = {
        "right": view.frame + 1,
        "left": view.frame - 1,
        "home": 0,
        "end": last,
        "n": next((at for at in rewarded.tolist() if at > view.frame), None),
        "p": next((at for at in rewarded[::-1].tolist() if at < view.frame), None),
    }.get(key)
    return view if frame is None else view._replace(frame=min(max(frame, 0), last), playing=False)
