"""Draws one frame of an episode on a sheet: the game, with actions and rewards below or beside it.

    80 columns, 29 rows             124 columns, 27 rows
    +--------------------+          +--------------------+------------+
    |      the game      |          |      the game      |   status   |
    +--------------------+          |                    |last rewards|
    |       status       |          +--------------------+------------+
    |  bars of rewards   |          |         bars of rewards         |
    +--------------------+          +---------------------------------+

If the probabilities of all actions are known, they replace the last rewards, or the bars of rewards. In a terminal the
last line lists the keys.
"""

from __future__ import annotations

import textwrap
from typing import NamedTuple

import numpy as np

from motif_jax.replays.canvas import BAD, COOL, GOOD, SOFT, TEXT, WARM, WHITE, Canvas, Span
from motif_jax.replays.replay import COLUMNS, ROWS, Story, bar_of, bars, number

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


class View(NamedTuple):
    """The state of the viewer."""

    frame: int = 0  # 0..T
    playing: bool = False
    speed: float = 10.0  # steps per second
    over: str = ""  # HELP, MESSAGES or nothing
    scroll: int = 0  # index of the first listed message


def compose(story: Story, view: View, rows: int, columns: int, keys: bool) -> Canvas:
    """Draws a view on a new sheet; with `keys` the last line lists the keys, or warns that the sheet is too small."""
    canvas = Canvas(rows, columns)
    replay, frame = story.replay, view.frame
    row, column = replay.cursor[frame].tolist()
    cut = int(rows - keys < story.rows)  # drops the game's first line: the last line then shows its message
    shown = slice(cut, story.rows)
    canvas.put_screen(replay.chars[frame, shown], replay.colors[frame, shown], (row - cut, column))
    if columns >= BESIDE[0] and rows >= BESIDE[1] + keys:
        _beside(canvas, story, view)
    else:
        _below(canvas, story, view, rows - story.rows - keys)
    if keys:
        canvas.put(rows - 1, 0, " " * columns)
        canvas.put_spans(rows - 1, 0, _last_line(story, view, rows, columns))
    if view.over == HELP:
        cover_with_help(canvas)
    elif view.over == MESSAGES:
        cover_with_messages(canvas, story, view.scroll, list_rows(rows, keys))
    return canvas


def needed(story: Story) -> tuple[int, int]:
    """The columns and rows that fit everything."""
    return COLUMNS, story.rows + len(STATUS_LINES)


def _last_line(story: Story, view: View, rows: int, columns: int) -> list[Span]:
    across, down = needed(story)
    if columns >= across and rows > down:
        return [(KEYS, SOFT)]
    words: Span = (f" {columns}x{rows} is too small, {across}x{down + 1} shows all ", SOFT)
    if rows > story.rows + 1:
        return [words, ("· ? keys · q quit", SOFT)]
    message = story.replay.message_text(view.frame)
    return [words, *_pace(view), (f" {_step(story, view)} ", TEXT), (message, _weight(story, view.frame))]


def list_rows(rows: int, keys: bool) -> int:
    """The number of lines that the list of messages may take."""
    return min(ROWS, rows - keys)


def _below(canvas: Canvas, story: Story, view: View, room: int) -> None:
    left_out = LEFT_OUT[: max(len(STATUS_LINES) - room, 0)]
    shown = [name for name in STATUS_LINES if name not in left_out][: max(room, 0)]
    replay, frame, last = story.replay, view.frame, max(canvas.columns - 13, 53)
    why, message = replay.chosen, replay.message_text(frame)
    title = [(f" {replay.title} ", COOL), (f"({why}) " if why else "", SOFT), (f"· {replay.ending} ", TEXT)]
    game = [*_amount(replay.reward, frame), (" sum ", SOFT), _sum(story.earned[frame])]
    gained = [("sum ", SOFT), _sum(story.gained[frame])] if story.learnt else []
    spans: dict[str, list[tuple[int, list[Span], int | None]]] = {  # by line: column, spans and width
        "title": [(0, [("─" * canvas.columns, SOFT)], None), (2, title, None)],
        "status": [
            (1, _pace(view), None), (12, [(_step(story, view), WHITE)], None),
            (32, _actions(story, frame), last - 33), (last, [("value ", SOFT), _value(story, frame)], None),
        ],
        "message": [(1, [("message", SOFT)], None), (12, [(message or "-", _weight(story, frame))], None)],
        "rewards": [
            (1, [("game", SOFT)], None), (12, game, None),
            (32, [(f"{replay.rewarded_by} ", SOFT), *_learnt(story, frame)], last - 33), (last, gained, None),
        ],
        "bars": [(1, _odds_in_a_line(story, frame), None)],
    }  # fmt: skip
    for row, name in enumerate(shown, story.rows):
        for column, some, width in spans[name]:
            canvas.put_spans(row, column, some, width)
        if name == "bars" and replay.odds is None:
            _bars(canvas, row, story, frame)


def _beside(canvas: Canvas, story: Story, view: View) -> None:
    replay, frame = story.replay, view.frame
    left, width = COLUMNS + 3, min(canvas.columns - COLUMNS - 4, WIDEST)
    for row in range(ROWS):
        canvas.put(row, COLUMNS + 1, "│", SOFT)
    canvas.put(0, left, replay.title, COOL, width)
    why = replay.chosen
    canvas.put(1, left, f"{replay.ending}{f' ({why})' if why else ''}", SOFT, width)
    canvas.put_spans(3, left, [*_pace(view), ("   ", TEXT), (_step(story, view), WHITE)], width)
    status = {
        "action": _actions(story, frame),
        "value": [_value(story, frame)],
        "game": [*_amount(replay.reward, frame), ("   sum ", SOFT), _sum(story.earned[frame])],
        replay.rewarded_by: _learnt(story, frame),
    } | ({"": [("sum ", SOFT), _sum(story.gained[frame])]} if story.learnt else {})
    for row, (label, spans) in enumerate(status.items(), 5):
        canvas.put(row, left, label, SOFT)
        canvas.put_spans(row, left + 9, spans, width - 9)
    row = 6 + len(status)
    for line, text in enumerate(textwrap.wrap(replay.message_text(frame), width)[:3] or ["-"], row):
        canvas.put(line, left, text, _weight(story, frame), width)
    (_last_rewards if replay.odds is None else _odds)(canvas, story, frame, row + 4, left, width)
    canvas.put(ROWS, 0, "─" * canvas.columns, SOFT)
    _bars(canvas, ROWS + 1, story, frame)


def _last_rewards(canvas: Canvas, story: Story, frame: int, row: int, left: int, width: int) -> None:
    before = story.rewarded[: np.searchsorted(story.rewarded, frame, side="right")]
    canvas.put(row, left, "last rewards" if len(before) else "no reward yet", SOFT, width)
    for line, at in enumerate(before[::-1][: ROWS - 1 - row].tolist(), row + 1):
        canvas.put(line, left, f"{at:>6,}", SOFT)
        canvas.put_spans(line, left + 7, [_sum(float(story.rewards[at]), 8)])
        text = story.replay.message_text(at - _late(story))
        canvas.put(line, left + 17, text, TEXT if at < frame else WHITE, width - 17)


def _odds(canvas: Canvas, story: Story, frame: int, row: int, left: int, width: int) -> None:
    actions = _next_actions(story, frame)
    start = max((len(name) for name, *_ in actions), default=0) + 1
    room = max(width - start - 5, 1)
    for line, (name, odds, style) in enumerate(actions[: ROWS - row], row):
        canvas.put(line, left, name, style, width)
        canvas.put_spans(
            line, left + start, [("█" * round(odds * room), style), (f" {odds:.0%}", style)], width - start
        )


def _odds_in_a_line(story: Story, frame: int) -> list[Span]:
    actions = _next_actions(story, frame)
    return [span for name, odds, style in actions for span in ((f"{name} {odds:.0%}", style), ("  ", SOFT))]


def _next_actions(story: Story, frame: int) -> list[tuple[str, float, int]]:
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
    here = bar_of(story, frame, width)
    for column, (bar, value) in enumerate(bars(story.rewards, width)):
        style = (GOOD if value > 0 else BAD) if value else SOFT
        canvas.put(row, 1 + column, bar if value else "·", style if column <= here or not value else style - 8)
    canvas.reverse(row, 1 + here)


def _pace(view: View) -> list[Span]:
    return [("▶" if view.playing else "‖", WARM), (f" {view.speed:g}/s", SOFT)]


def _step(story: Story, view: View) -> str:
    return f"step {view.frame:,} of {story.replay.steps:,}"


def _actions(story: Story, frame: int) -> list[Span]:
    """The action before this frame, and the one after it with its probability."""
    replay = story.replay
    came, goes = replay.action_name(frame - 1), replay.action_name(frame)
    spans = [(came or "the start", TEXT), (" → ", SOFT), (goes or "the end", WHITE)]
    if goes and np.isfinite(replay.probability[frame]):
        spans.append((f" {replay.probability[frame]:.0%}", SOFT))
    return spans


def _value(story: Story, frame: int) -> Span:
    return number(float(story.replay.value[frame])) if frame < story.replay.steps else "-", TEXT


def _learnt(story: Story, frame: int) -> list[Span]:
    """The message's normalised reward, its count, and the resulting intrinsic reward; of a program, the reward."""
    replay = story.replay
    if not story.learnt or not frame:
        return [("-", SOFT)]
    if replay.rewarded_by == "program":
        return _amount(replay.intrinsic, frame)
    return [
        (number(replay.z[frame - 1]), TEXT), (f" seen {replay.count[frame - replay.is_late]}x → ", SOFT),
        *_amount(replay.intrinsic, frame),
    ]  # fmt: skip


def _amount(values: np.ndarray, frame: int) -> list[Span]:
    """The reward of the step before this frame."""
    return [_sum(float(values[frame - 1])) if frame else ("-", SOFT)]


def _sum(value: float, width: int = 0) -> Span:
    return f"{number(value):>{width}}", GOOD if value > 0 else BAD if value < 0 else SOFT


def _late(story: Story) -> int:
    """How many frames before a reward its message is."""
    return int(story.learnt and story.replay.is_late)


def _weight(story: Story, frame: int) -> int:
    paid = story.rewards[frame + _late(story) :][:1].any()
    return WHITE if paid else TEXT if story.replay.message_text(frame) else SOFT


# ---- lists over the game


def cover_with_help(canvas: Canvas) -> None:
    """Draws the list of keys over the sheet."""
    width = _box(canvas, "keys", len(KEYS_HELP) + 2)
    for row, (keys, what) in enumerate(KEYS_HELP, 1):
        canvas.put(row, 3, keys, WHITE)
        canvas.put(row, 20, what, TEXT, width - 21)


def cover_with_messages(canvas: Canvas, story: Story, first: int, rows: int) -> None:
    """Lists the most frequent messages from number `first` on, over the first `rows` lines of the sheet."""
    replay = story.replay
    width = _box(canvas, f"top messages · {replay.ending} after {replay.steps:,} steps", rows)
    canvas.put(1, 2, f"{'times':>6}  {'reward':>8}  message", SOFT, width - 3)
    listed = story.top[first : first + listed_at_once(rows)]
    for row, top in enumerate(listed, 2):
        text = top.text.strip()
        canvas.put(row, 2, f"{top.times:>6,}", TEXT, width - 3)
        canvas.put(row, 10, *_sum(top.z, 8), width - 11)
        canvas.put(row, 20, text or "(no message)", WHITE if text else SOFT, width - 21)
    if len(listed) < len(story.top):
        canvas.put(rows - 2, 3, f"{first + 1}-{first + len(listed)} of {len(story.top)}", SOFT, width - 4)


def listed_at_once(rows: int) -> int:
    """The number of messages that fit into a box of `rows` lines."""
    return max(rows - AROUND, 1)


def _box(canvas: Canvas, title: str, rows: int) -> int:
    """Draws an empty box of `rows` lines over the game; returns its width."""
    width = min(canvas.columns, COLUMNS)
    inner = max(width - 2, 0)
    for row in range(rows):
        left, fill, right = "┌─┐" if row == 0 else "└─┘" if row == rows - 1 else "│ │"
        canvas.put(row, 0, f"{left}{fill * inner}{right}", SOFT)
    canvas.put(0, 2, f" {title} ", COOL, inner - 2)
    return width
