"""Scripted players of visual dialogue, and their questions.

asker      asks for attributes in random order, each once
checker    asks yes-or-no questions in random order, each once
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from motif_jax.envs.guessing.scenes import ATTRIBUTES, SAID
from motif_jax.envs.text_players import Makers, without_arguments

OPEN = tuple(f"what is the {name}?" for name in ATTRIBUTES if name not in SAID)
CLOSED = tuple(f"is it {value}?" for name, values in ATTRIBUTES.items() if name not in SAID for value in values)
QUESTIONS = OPEN + CLOSED


class Asker:
    """Asks all questions in random order, then all again in another order."""

    def __init__(self, questions: Sequence[str]):
        """Takes the questions."""
        self._questions = list(questions)

    def begin(self, rng: random.Random) -> None:
        """See `TextPlayer`."""
        self._left: list[str] = []
        self._rng = rng

    def choose(self, game: Any) -> str:
        """See `TextPlayer`."""
        if not self._left:
            self._left = self._rng.sample(self._questions, len(self._questions))
        return self._left.pop()


MAKERS: Makers = {
    "asker": without_arguments("asker", lambda: Asker(OPEN)),
    "checker": without_arguments("checker", lambda: Asker(CLOSED)),
}
