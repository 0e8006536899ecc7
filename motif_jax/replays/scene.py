"""Draws one frame of an episode on a sheet: the game, with actions and rewards below or beside it.

    80 columns, 29 rows             124 columns, 27 rows
    +--------------------+          +--------------------+------------+
    |      the game      |          |      the game      |   status   |
    +--------------------+          |                    |last rewards|
    |       status       |          +--------------------+------------+
    |  bars of rewards   |          |         bars of rewards         |
    +--------------------+          +---------------------------------+

If the probabilities of all actions are known, they replace the last rewards, or the bars of rewards. In a terminal the
last line lists the keys. At the end of this file is the viewer, which shows these sheets in a terminal.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import sys
import termios
import textwrap
import time
import tty
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from motif_jax.replays.replay import COLUMNS, ROWS, Replay, Story, bars, describe, number
from motif_jax.screens import REVERSED, SHOWN, printable

TEXT, WHITE, SOFT, GOOD, BAD, WARM, COOL = 7, 15, 8, 10, 9, 11, 14  # colours of everything except the game
SAME_RUN = 4  # columns from one change to the next that are written through: moving the cursor takes more bytes

Span = tuple[str, int]  # a piece of text and its style
STATUS_LINES = ("title", "status", "message", "rewards", "bars")  # lines below the game
LEFT_OUT = ("title", "bars", "message", "rewards")  # lines dropped in this order on a small sheet
BESIDE = COLUMNS + 3 + 41, ROWS + 3  # minimum columns and rows for the status beside the game
WIDEST = 64  # maximum columns of the status beside the game
HELP, MESSAGES = "help", "messages"  # lists that can cover the game
KEYS = " space play · ←→ step · ↑↓ speed · n p rewards · t messages · ? help · q quit"
KEYS_HELP = (
    ("space", "play, pause; at the end: play again"),
    ("→ ←   l h", "one step on, one step back"),
    ("↑ ↓   + -", "faster, slower"),
    ("n p", "next, previous step with a reward"),
    ("home end   g G", "to the start, to the end"),
    ("t", "the episode's messages, most frequent first"),
    ("?", "these keys"),
    ("q", "quit"),
)
AROUND = 4  # lines of the list without messages: the box, the head, and the range


class Canvas:
    """A sheet: characters and their styles, which are colours 0..15, plus 16 for reversed."""

    def __init__(self, rows: int, columns: int):
        self.rows, self.columns = rows, columns
        self.chars = np.full((rows, columns), ord(" "), np.uint32)
        self.styles = np.full((rows, columns), TEXT, np.uint8)

    def put(self, row: int, column: int, *spans: Span, width: int | None = None) -> None:
        """Writes texts from any source one after another, cut at `width` and at the edge."""
        end = self.columns if width is None else min(column + width, self.columns)
        for text, style in spans:
            room = end - column
            if not 0 <= row < self.rows or room <= 0:
                return
            shown = printable(text)
            if len(shown) > room:
                shown = shown[: room - 1] + "…"
            self.chars[row, column : column + len(shown)] = [ord(character) for character in shown]
            self.styles[row, column : column + len(shown)] = style
            column += len(shown)

    def put_screen(self, chars: np.ndarray, colors: np.ndarray, cursor: tuple[int, int]) -> None:
        """Draws lines of the game in the upper left corner, cropped to the sheet. [R, 80] each

        `colors` are 0..15, from 16 on reversed. `cursor`: row and column of the reversed square.
        """
        rows, columns = min(self.rows, chars.shape[0]), min(self.columns, chars.shape[1])
        self.chars[:rows, :columns] = SHOWN[chars[:rows, :columns]]
        plain = (colors < REVERSED) & (SHOWN[chars] == ord(" ")) | (colors >= 2 * REVERSED)  # a blank has no colour
        self.styles[:rows, :columns] = np.where(plain, TEXT, colors)[:rows, :columns]
        row, column = cursor
        if 0 <= row < rows and column < columns:
            style = int(self.styles[row, column])
            self.styles[row, column] = (style if style % REVERSED else TEXT) ^ REVERSED

    def text(self) -> list[str]:
        return ["".join(map(chr, line)) for line in self.chars]


def changes(before: Canvas | None, after: Canvas) -> str:
    """The escape sequences that turn a terminal's contents from `before` (None: unknown) into `after`."""
    if before is None:
        changed = np.ones(after.chars.shape, bool)
        parts = ["\033[0;37;40m\033[2J"]
    else:
        changed = (before.chars != after.chars) | (before.styles != after.styles)
        parts = []
    style = -1
    for row in np.flatnonzero(changed.any(1)):
        codes, styles = after.chars[row].tolist(), after.styles[row].tolist()
        columns = np.flatnonzero(changed[row])
        for run in np.split(columns, np.flatnonzero(np.diff(columns) > SAME_RUN) + 1):
            parts.append(f"\033[{row + 1};{run[0] + 1}H")
            for column in range(run[0], run[-1] + 1):
                if styles[column] != style:  # always on black, for which the game's colours are made
                    style = styles[column]
                    color = style % REVERSED or 8  # black on black would be invisible
                    parts.append(f"\033[0;{color + (30 if color < 8 else 82)};40{';7' * (style >= REVERSED)}m")
                parts.append(chr(codes[column]))
    if style >= 0:
        parts.append("\033[0m")
    return "".join(parts)


class View(NamedTuple):
    """The state of the viewer."""

    frame: int = 0  # 0..T
    playing: bool = False
    speed: float = 10.0  # steps per second
    over: str = ""  # HELP, MESSAGES or nothing
    scroll: int = 0  # index of the first listed message


def compose(story: Story, view: View, rows: int, columns: int, keys: bool) -> Canvas:
    """Draws a view on a new sheet; with `keys` the last line lists the keys, or warns that the sheet is too small."""
    canvas, replay, told = Canvas(rows, columns), story.replay, _describe(story, view)
    row, column = replay.cursor[view.frame].tolist()
    cut = int(rows - keys < story.rows)  # drops the game's first line: the last line then shows its message
    shown = slice(cut, story.rows)
    canvas.put_screen(replay.chars[view.frame, shown], replay.colors[view.frame, shown], (row - cut, column))
    if columns >= BESIDE[0] and rows >= BESIDE[1] + keys:
        _beside(canvas, story, view.frame, told)
    else:
        _below(canvas, story, view.frame, told, rows - story.rows - keys)
    if keys:
        canvas.put(rows - 1, 0, (" " * columns, TEXT))
        across, down = needed(story)
        small: Span = (f" {columns}x{rows} is too small, {across}x{down + 1} shows all ", SOFT)
        last = [small, ("· ? keys · q quit", SOFT)]
        if columns >= across and rows > down:
            last = [(KEYS, SOFT)]
        elif rows <= story.rows + 1:
            last = [small, *told["pace"], (f" {told['step'][0][0]} ", TEXT), *told["message"]]
        canvas.put(rows - 1, 0, *last)
    if view.over == HELP:
        width = _box(canvas, "keys", len(KEYS_HELP) + 2)
        for row, (names, what) in enumerate(KEYS_HELP, 1):
            canvas.put(row, 3, (names, WHITE))
            canvas.put(row, 20, (what, TEXT), width=width - 21)
    elif view.over == MESSAGES:
        cover_with_messages(canvas, story, view.scroll, list_rows(rows, keys))
    return canvas


def needed(story: Story) -> tuple[int, int]:
    """The columns and rows that fit everything."""
    return COLUMNS, story.rows + len(STATUS_LINES)


def list_rows(rows: int, keys: bool) -> int:
    """The number of lines that the list of messages may take."""
    return min(ROWS, rows - keys)


def _describe(story: Story, view: View) -> dict[str, list[Span]]:
    """What both layouts tell about a frame: the action, and the rewards of the step before it."""
    replay, frame, at = story.replay, view.frame, view.frame - 1
    came, goes = replay.action_name(at), replay.action_name(frame)
    actions = [(came or "the start", TEXT), (" → ", SOFT), (goes or "the end", WHITE)]
    if goes and np.isfinite(replay.probability[frame]):
        actions.append((f" {replay.probability[frame]:.0%}", SOFT))
    learnt: list[Span] = [("-", SOFT)]
    if story.learnt and frame:
        learnt = [_sum(float(replay.intrinsic[at]))]
        if np.isfinite(replay.z).any():
            seen = f" seen {replay.count[frame - replay.is_late]}x → "
            learnt = [(number(replay.z[at]), TEXT), (seen, SOFT), *learnt]
    message = replay.message_text(frame)
    is_paid = story.rewards[frame + _late(story) :][:1].any()
    return {
        "pace": [("▶" if view.playing else "‖", WARM), (f" {view.speed:g}/s", SOFT)],
        "step": [(f"step {frame:,} of {replay.steps:,}", WHITE)],
        "actions": actions,
        "value": [(number(float(replay.value[frame])) if frame < replay.steps else "-", TEXT)],
        "game": [_sum(float(replay.reward[at])) if frame else ("-", SOFT)],
        "earned": [("sum ", SOFT), _sum(story.earned[frame])],
        "learnt": learnt,
        "gained": [("sum ", SOFT), _sum(story.gained[frame])] if story.learnt else [],
        "message": [(message, WHITE if is_paid else TEXT if message else SOFT)],
    }


def _below(canvas: Canvas, story: Story, frame: int, told: dict[str, list[Span]], room: int) -> None:
    left_out = LEFT_OUT[: max(len(STATUS_LINES) - room, 0)]
    shown = [name for name in STATUS_LINES if name not in left_out][: max(room, 0)]
    replay, middle, last = story.replay, 32, max(canvas.columns - 13, 53)  # columns; the middle ends before the last
    why = f"({replay.chosen}) " if replay.chosen else ""
    title = [(f" {replay.title} ", COOL), (why, SOFT), (f"· {replay.ending} ", TEXT)]
    ((message, weight),) = told["message"]
    odds = [span for name, odds, style in _odds(story, frame) for span in ((f"{name} {odds:.0%}", style), ("  ", SOFT))]
    spans: dict[str, dict[int, list[Span]]] = {  # by line and column
        "title": {0: [("─" * canvas.columns, SOFT)], 2: title},
        "status": {
            1: told["pace"], 12: told["step"], middle: told["actions"], last: [("value ", SOFT), *told["value"]],
        },
        "message": {1: [("message", SOFT)], 12: [(message or "-", weight)]},
        "rewards": {
            1: [("game", SOFT)], 12: [*told["game"], (" ", SOFT), *told["earned"]],
            middle: [(f"{replay.rewarded_by} ", SOFT), *told["learnt"]], last: told["gained"],
        },
        "bars": {1: odds},
    }  # fmt: skip
    for row, name in enumerate(shown, story.rows):
        for column, some in spans[name].items():
            canvas.put(row, column, *some, width=last - middle - 1 if column == middle else None)
        if name == "bars" and replay.odds is None:
            _bars(canvas, row, story, frame)


def _beside(canvas: Canvas, story: Story, frame: int, told: dict[str, list[Span]]) -> None:
    replay = story.replay
    left, width = COLUMNS + 3, min(canvas.columns - COLUMNS - 4, WIDEST)
    for row in range(ROWS):
        canvas.put(row, COLUMNS + 1, ("│", SOFT))
    canvas.put(0, left, (replay.title, COOL), width=width)
    why = f" ({replay.chosen})" if replay.chosen else ""
    canvas.put(1, left, (f"{replay.ending}{why}", SOFT), width=width)
    canvas.put(3, left, *told["pace"], ("   ", TEXT), *told["step"], width=width)
    labels = {"action": "actions", "value": "value", "game": "game", replay.rewarded_by: "learnt", "": "gained"}
    told = told | {"game": [*told["game"], ("   ", SOFT), *told["earned"]]}
    row = 5
    for label, name in labels.items():
        if told[name]:
            canvas.put(row, left, (label, SOFT))
            canvas.put(row, left + 9, *told[name], width=width - 9)
            row += 1
    ((message, weight),) = told["message"]
    for line, text in enumerate(textwrap.wrap(message, width)[:3] or ["-"], row + 1):
        canvas.put(line, left, (text, weight), width=width)
    row += 5
    if replay.odds is not None:
        actions = _odds(story, frame)
        start = max((len(name) for name, *_ in actions), default=0) + 1
        for line, (name, odds, style) in enumerate(actions[: ROWS - row], row):
            bar = "█" * round(odds * max(width - start - 5, 1))
            canvas.put(line, left, (name, style), width=width)
            canvas.put(line, left + start, (bar, style), (f" {odds:.0%}", style), width=width - start)
    else:
        before = story.rewarded[: np.searchsorted(story.rewarded, frame, side="right")]
        canvas.put(row, left, ("last rewards" if len(before) else "no reward yet", SOFT), width=width)
        for line, at in enumerate(before[::-1][: ROWS - 1 - row].tolist(), row + 1):
            canvas.put(line, left, (f"{at:>6,}", SOFT))
            canvas.put(line, left + 7, _sum(float(story.rewards[at]), 8))
            text = replay.message_text(at - _late(story))
            canvas.put(line, left + 17, (text, TEXT if at < frame else WHITE), width=width - 17)
    canvas.put(ROWS, 0, ("─" * canvas.columns, SOFT))
    _bars(canvas, ROWS + 1, story, frame)


def _odds(story: Story, frame: int) -> list[tuple[str, float, int]]:
    """The names of all actions, their probabilities, and their style: white for the one that was taken next."""
    replay = story.replay
    if replay.odds is None or frame >= replay.steps:
        return []
    pairs = zip(replay.metadata["action_names"], np.nan_to_num(replay.odds[frame]).tolist(), strict=True)
    taken = replay.action[frame]
    return [(str(name), odds, WHITE if number == taken else SOFT) for number, (name, odds) in enumerate(pairs)]


def _bars(canvas: Canvas, row: int, story: Story, frame: int) -> None:
    """Draws the rewards of the whole episode as bars, and marks this frame."""
    width = canvas.columns - 2
    if width < 1:
        return
    shown, here = bars(story.rewards, width, frame)
    for column, (bar, value) in enumerate(shown):
        style = (GOOD if value > 0 else BAD) - 8 * (column > here)
        canvas.put(row, 1 + column, (bar, style) if value else ("·", SOFT))
    if row < canvas.rows:
        canvas.styles[row, 1 + here] ^= REVERSED


def _sum(value: float, width: int = 0) -> Span:
    return f"{number(value):>{width}}", GOOD if value > 0 else BAD if value < 0 else SOFT


def _late(story: Story) -> int:
    """How many frames before a reward its message is."""
    return int(story.learnt and story.replay.is_late)


# ---- lists over the game


def cover_with_messages(canvas: Canvas, story: Story, first: int, rows: int) -> None:
    """Lists the most frequent messages from number `first` on, over the first `rows` lines of the sheet."""
    replay = story.replay
    width = _box(canvas, f"top messages · {replay.ending} after {replay.steps:,} steps", rows)
    canvas.put(1, 2, (f"{'times':>6}  {'reward':>8}  message", SOFT), width=width - 3)
    listed = story.top[first : first + max(rows - AROUND, 1)]
    for row, top in enumerate(listed, 2):
        text = top.text.strip()
        canvas.put(row, 2, (f"{top.times:>6,}", TEXT), width=width - 3)
        canvas.put(row, 10, _sum(top.z, 8), width=width - 11)
        canvas.put(row, 20, (text, WHITE) if text else ("(no message)", SOFT), width=width - 21)
    if len(listed) < len(story.top):
        shown = f"{first + 1}-{first + len(listed)} of {len(story.top)}"
        canvas.put(rows - 2, 3, (shown, SOFT), width=width - 4)


def _box(canvas: Canvas, title: str, rows: int) -> int:
    """Draws an empty box of `rows` lines over the game; returns its width."""
    width = min(canvas.columns, COLUMNS)
    inner = max(width - 2, 0)
    for row in range(rows):
        left, fill, right = "┌─┐" if row == 0 else "└─┘" if row == rows - 1 else "│ │"
        canvas.put(row, 0, (f"{left}{fill * inner}{right}", SOFT))
    canvas.put(0, 2, (f" {title} ", COOL), width=inner - 2)
    return width


# ---- the viewer, which plays an episode in a terminal; each key maps a view of the episode to the next view

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
    view = View(playing=replay.steps > 0, speed=speed)
    sys.stdout.flush()
    with open_terminal(sys.stdin.fileno(), sys.stdout.fileno()) as terminal:
        since, start = time.monotonic(), 0  # frame `start` was shown at time `since`
        while True:
            terminal.show(compose(story, view, *terminal.size(), keys=True))
            due = (since + (view.frame + 1 - start) / view.speed - time.monotonic()) if view.playing else LOOK_EVERY_S
            shown = view
            for key in terminal.keys(min(max(due, DRAW_EVERY_S), LOOK_EVERY_S)):
                pressed = press(view, key, story, max(list_rows(terminal.size()[0], keys=True) - AROUND, 1))
                if pressed is None:
                    return story
                view = pressed
            now = time.monotonic()
            if (view.playing, view.speed) != (shown.playing, shown.speed) or not view.playing:
                since, start = now, view.frame
                continue
            frame = start + int((now - since) * view.speed)
            if frame < replay.steps:
                view = view._replace(frame=frame)
            else:  # playing stops, and the messages are listed
                view = view._replace(frame=replay.steps, playing=False, over=MESSAGES, scroll=0)


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
        """The pressed keys, characters or words of `NAMES`, "" if unknown; waits up to `timeout` s for the first."""
        data = b""
        while select.select([self._source], [], [], REST_OF_KEY_S if data else timeout)[0]:
            pressed = os.read(self._source, 1024)
            if not pressed:  # end of input
                return ["q"]
            data += pressed
            if not UNFINISHED.search(data):
                break
        return [NAMES.get(key, key.decode() if re.fullmatch(rb"[ -~]", key) else "") for key in KEY.findall(data)]


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


def press(view: View, key: str, story: Story, at_once: int) -> View | None:
    """The view after a key, a character or one of NAMES; None: the user quits. `at_once`: messages in the list."""
    key = SAME_AS.get(key, key)
    if key == "q":
        return None
    over = {"t": MESSAGES, "?": HELP}.get(key, "")
    if over and over != view.over:
        return view._replace(over=over, scroll=0, playing=False)
    moves = {"up": -1, "down": 1, "page up": -at_once, "page down": at_once, " ": at_once}
    if view.over == MESSAGES and key in (*moves, "home", "end"):
        last = max(len(story.top) - at_once, 0)
        where = {"home": 0, "end": last}.get(key, view.scroll + moves.get(key, 0))
        return view._replace(scroll=min(max(where, 0), last))
    if view.over:
        return view._replace(over="")
    last, rewarded = story.replay.steps, story.rewarded.tolist()
    if key == " ":
        again = not view.playing and view.frame == last
        return view._replace(frame=0 if again else view.frame, playing=not view.playing)
    if key in ("up", "down"):
        faster, slower = [speed for speed in SPEEDS if speed > view.speed], [one for one in SPEEDS if one < view.speed]
        return view._replace(speed=([*faster, view.speed][0] if key == "up" else [view.speed, *slower][-1]))
    frame = {
        "right": view.frame + 1,
        "left": view.frame - 1,
        "home": 0,
        "end": last,
        "n": min((at for at in rewarded if at > view.frame), default=None),
        "p": max((at for at in rewarded if at < view.frame), default=None),
    }.get(key)
    return view if frame is None else view._replace(frame=min(max(frame, 0), last), playing=False)
