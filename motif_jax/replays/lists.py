"""Overlays of the viewer: the episode's most frequent messages, and the keys."""

from __future__ import annotations

from motif_jax.replays.canvas import BAD, COOL, GOOD, SOFT, TEXT, WHITE, Canvas
from motif_jax.replays.replay import COLUMNS
from motif_jax.replays.story import Story, ending, number

HELP = (
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


def cover_with_help(canvas: Canvas) -> None:
    """Draws the list of keys over the sheet."""
    _box(canvas, "keys", len(HELP) + 2)
    for row, (keys, what) in enumerate(HELP, 1):
        canvas.put(row, 3, keys, WHITE)
        canvas.put(row, 20, what, TEXT, _width(canvas) - 21)


def cover_with_messages(canvas: Canvas, story: Story, first: int, rows: int) -> None:
    """Lists the most frequent messages from number `first` on, over the first `rows` lines of the sheet."""
    replay, width = story.replay, _width(canvas)
    _box(canvas, f"top messages · {ending(replay.about)} after {replay.steps:,} steps", rows)
    canvas.put(1, 2, f"{'times':>6}  {'reward':>8}  message", SOFT, width - 3)
    listed = story.top[first : first + listed_at_once(rows)]
    for row, top in enumerate(listed, 2):
        text = top.text.strip()
        canvas.put(row, 2, f"{top.times:>6,}", TEXT, width - 3)
        canvas.put(row, 10, f"{number(top.z):>8}", GOOD if top.z > 0 else BAD if top.z < 0 else SOFT, width - 11)
        canvas.put(row, 20, text or "(no message)", WHITE if text else SOFT, width - 21)
    if len(listed) < len(story.top):
        canvas.put(rows - 2, 3, f"{first + 1}-{first + len(listed)} of {len(story.top)}", SOFT, width - 4)


def listed_at_once(rows: int) -> int:
    """The number of messages that fit into a box of `rows` lines."""
    return max(rows - AROUND, 1)


def _width(canvas: Canvas) -> int:
    return min(canvas.columns, COLUMNS)


def _box(canvas: Canvas, title: str, rows: int) -> None:
    """Draws an empty box of `rows` lines over the game."""
    inner = max(_width(canvas) - 2, 0)
    for row in range(rows):
        left, fill, right = "┌─┐" if row == 0 else "└─┘" if row == rows - 1 else "│ │"
        canvas.put(row, 0, f"{left}{fill * inner}{right}", SOFT)
    canvas.put(0, 2, f" {title} ", COOL, inner - 2)
