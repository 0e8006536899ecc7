"""Moments of a game as transcripts: a prompt that the world writes, and the name of the action that was right or taken.

Each moment is an episode of its own, because a policy that reads prompts sees nothing beside the prompt.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from motif_jax.structs import Episode, Turn

WORDS_PER_TEXT = 50


def moment(prompt: str, action: str, reward: float = 0.0, **info: float) -> Episode:
    """One moment; `reward` is what the action was worth."""
    return Episode((Turn(prompt), Turn(action, reward)), terminal=True, info=info)


def vocabulary(texts: Iterable[str], **info: float) -> Iterator[Episode]:
    """Texts in which the agent says nothing, so that the tokens of a new model have all words of a world."""
    words = " ".join(texts).split()
    for start in range(0, len(words), WORDS_PER_TEXT):
        yield Episode((Turn(" ".join(words[start : start + WORDS_PER_TEXT])),), terminal=True, info=info)
