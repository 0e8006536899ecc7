"""Decision points of a game as transcripts: a prompt of the world, and the name of the correct or chosen action.

Each is a separate episode, because a policy that reads prompts sees only the prompt.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from motif_jax.structs import Episode, Turn
from motif_jax.transcripts.store import Transcripts

DECISION_POINTS = "moments"  # key of the provenance
WORDS_PER_TEXT = 50


def decision_point(prompt: str, action: str, reward: float = 0.0, **info: float) -> Episode:
    """One decision point as an episode; `reward` is the action's."""
    return Episode((Turn(prompt), Turn(action, reward)), terminal=True, info=info)


def vocabulary(texts: Iterable[str], **info: float) -> Iterator[Episode]:
    """Episodes without actions, which add all words of a world to the vocabulary of a new model."""
    words = " ".join(texts).split()
    for start in range(0, len(words), WORDS_PER_TEXT):
        yield Episode((Turn(" ".join(words[start : start + WORDS_PER_TEXT])),), terminal=True, info=info)


def are_decision_points(transcripts: Transcripts) -> bool:
    """Whether the episodes are decision points that `collect` recorded; `info` has the `step` of each."""
    return transcripts.record["provenance"].get(DECISION_POINTS) is True


def game_returns(transcripts: Transcripts) -> np.ndarray:
    """The return of each game; for decision points, the return of the first one. [games] float64"""
    returns = transcripts.returns()
    return returns[transcripts.info["step"] == 0] if are_decision_points(transcripts) else returns
