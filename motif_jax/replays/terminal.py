"""The viewer, which plays an episode in the terminal.

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
from motif_jax.replays.controls import arrive, press
from motif_jax.replays.replay import Replay
from motif_jax.replays.scene import View, compose, list_rows
from motif_jax.replays.story import Story, describe

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
            more = os.read(self._source, 1024)
            if not more:  # end of input
                return ["q"]
            data += more
            if not UNFINISHED.search(data):
                break
        return [name(key) for key in KEY.findall(data)]


def name(key: bytes) -> str:
    """The name of a key: a character, or a word of `controls`; "" for unknown keys."""
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
