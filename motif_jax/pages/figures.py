"""Titles and order of the figures of episodes, which of their sides is better, curves and metrics of training.

A figure that WORDS does not contain is shown under the name that its world gives it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from motif_jax.pages.blocks import table
from motif_jax.pages.charts import Point, spark
from motif_jax.pages.formats import esc, number

WORDS = {  # of the evaluation's figures: title and note
    "return": ("the game's return", ""), "score": ("score", "at the end"),
    "max_depth": ("deepest level", ""), "gold": ("gold", "at the end"),
    "experience_level": ("experience level", "at the end"), "progression": ("progression", "BALROG's, in percent"),
    "scout": ("squares seen", ""), "steps": ("steps", "until the end"), "success": ("success", "share of episodes"),
    "intrinsic_return": ("learnt return", "what the preferences reward"),
}  # fmt: skip
COMPARED = ("score", "intrinsic_return", "gold", "max_depth", "experience_level", "success")  # on the first screen
Curve = tuple[str, str, str]  # metric of training, title, note
AT_THE_END = ("score", "gold", "max_depth", "experience_level", "progression", "success")
CURVES: tuple[Curve, ...] = (
    ("episode/intrinsic_return", "Learnt return", "per episode"),
    ("episode/return", "The game's return", "per episode"),
    *((f"episode/{name}", WORDS[name][0].capitalize(), WORDS[name][1]) for name in AT_THE_END),
    ("episode/steps", "Length", "steps per episode"),
    ("train/entropy", "Entropy", "of the policy"),
    ("steps_per_s", "Speed", "steps/s"),
)
HIGHER_IS_BETTER = (
    "return", "score", "max_depth", "gold", "experience_level", "progression", "scout", "success", "intrinsic_return",
    "kills",
)  # fmt: skip
UNSHOWN = (  # without a curve
    "count", "all", "share_death", "share_ended", "share_aborted", "ascended", "turns", "depth", "scout", "family",
    "bot_steps",
)  # fmt: skip


def words(figure: str) -> tuple[str, str]:
    """The title of a figure, and a note on it."""
    return WORDS.get(figure) or (figure.replace("_", " "), "")


def in_order(figures: Iterable[str]) -> list[str]:
    """The figures in the order of the page: those that WORDS does not contain stand after the return."""
    order = list(WORDS)
    return sorted(dict.fromkeys(figures), key=lambda figure: order.index(figure) if figure in WORDS else 0.5)


def better(figure: str, figures: Iterable[str]) -> str:
    """Whether "higher" or "lower" is better; "" if that is not known, as for the figures of a user's own world.

    `figures` are all measured ones: fewer steps are better where episodes can succeed.
    """
    if figure == "steps":
        return "lower" if "success" in figures else ""
    return "higher" if figure in HIGHER_IS_BETTER or figure.startswith("success_") else ""  # of a family of missions


def compared(figures: Iterable[str]) -> list[str]:
    """The figures for the comparison with random play on the first screen, the most informative first."""
    names = list(figures)
    own = [name for name in in_order(names) if name not in WORDS and name not in UNSHOWN]
    first = [*own, *COMPARED] if "score" not in names else list(COMPARED)
    return [name for name in first if name in names] + (["return"] if "score" not in names else [])


def curves_of(metrics: Iterable[str]) -> list[Curve]:
    """The curves of training for these metrics, in the order of the page."""
    shown = {name for name, *_ in CURVES} | {f"episode/{name}" for name in UNSHOWN}
    own = sorted(name for name in set(metrics) - shown if name.startswith("episode/"))
    titles = ((name, words(name.removeprefix("episode/"))[0].capitalize(), "") for name in own)
    return [*CURVES[:2], *titles, *CURVES[2:]]


def curve(rows: Sequence[Mapping[str, Any]], name: str) -> list[Point]:
    """The points (steps, value) of a metric of training, from the rows that have it."""
    return [(row["env_steps"], number(row[name])) for row in rows if row.get(name) is not None]


def all_metrics(rows: Sequence[Mapping[str, Any]]) -> str:
    """A folded table of everything that a stage has written to `metrics.jsonl`, with small curves, as HTML."""
    body = []
    for name in sorted({name for row in rows for name in row}):
        if values := [number(row[name]) for row in rows if isinstance(row.get(name), int | float)]:
            figures = (f"{value:,.4g}" for value in (values[0], min(values), max(values), values[-1]))
            body.append([esc(name), *figures, spark(values)])
    head = ("metric", "first", "lowest", "highest", "last", "")
    return f"<details><summary>All metrics</summary>{table(head, body, (1, 2, 3, 4), kind='fits')}</details>"
