"""Moments of a game as transcripts: a prompt that the world writes, and the name of the action that was right or taken.

Each moment is an episode of its own, because a policy that reads prompts sees nothing beside the prompt.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from motif_jax.structs import Episode, Turn
from motif_jax.transcripts.store import Transcripts

MOMENTS = "moments"  # key of the provenance of recorded moments
WORDS_PER_TEXT = 50


def moment(prompt: str, action: str, reward: float = 0.0, **info: float) -> Episode:
    """One moment; `reward` is what the action was worth."""
    return Episode((Turn(prompt), Turn(action, reward)), terminal=True, info=info)


def vocabulary(texts: Iterable[str], **info: float) -> Iterator[Episode]:
    """Texts in which the agent says nothing, so that the tokens of a new model have all words of a world."""
    words = " ".join(texts).split()
    for start in range(0, len(words), WORDS_PER_TEXT):
        yield Episode((Turn(" ".join(words[start : start + WORDS_PER_TEXT])),), terminal=True, info=info)


def are_moments(transcripts: Transcripts) -> bool:
    """Whether the episodes are the moments of games that `collect` has recorded; `info` has the `step` of each."""
    return transcripts.record["provenance"].get(MOMENTS) is True


def game_returns(transcripts: Transcripts) -> np.ndarray:
    """The return of each game; that of moments is what its first moment was worth. [games] float64"""
    returns = transcripts.returns()
    return returns[transcripts.info["step"] == 0] if are_moments(transcripts) else returns
