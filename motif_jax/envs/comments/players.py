"""Scripted players of comments: they write a comment of a list, whatever the post is.

kind       a friendly comment
rude       one that a lexicon of insults notices
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from motif_jax.envs.comments.scores import FOLDER, read_lines
from motif_jax.envs.text_players import Makers, TextPlayer, no_arguments


class Commenter:
    """Writes one of some comments."""

    def __init__(self, comments: Sequence[str]):
        """Takes the comments."""
        self._comments = comments

    def begin(self, rng: random.Random) -> None:
        """See `TextPlayer`."""
        self._rng = rng

    def choose(self, game: Any) -> str:
        """See `TextPlayer`."""
        return self._rng.choice(self._comments)


def comments(name: str) -> list[str]:
    """Our own comments of a kind."""
    return read_lines(str(FOLDER / f"{name}.txt"))


def _commenter(name: str) -> Callable[[list[str]], TextPlayer]:
    def make(arguments: list[str]) -> TextPlayer:
        no_arguments(name, arguments)
        return Commenter(comments(name))

    return make


MAKERS: Makers = {"kind": _commenter("kind"), "rude": _commenter("rude")}
