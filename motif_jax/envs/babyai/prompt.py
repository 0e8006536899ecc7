"""The text that a language model continues with an action: the possible actions, the goal, the last observations.

    Possible action of the agent: turn left, turn right, go forward, pick up, drop, toggle
     Goal of the agent: go to the red ball
     Observation 0: You see a wall 2 steps left, You see a red ball 1 step right,
     Action 0: turn right
     Observation 1: You see a red ball 1 step forward,
     Action 1:

Each line but the first begins with a space, and each but the last ends with one; the last ends with ": ".
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from motif_jax.envs.babyai.words import Language
from motif_jax.structs import ArraySpec, UserError

BYTES_FLAG = "--config.env.babyai.prompt_bytes"
FIXED_BYTES, BYTES_PER_OBSERVATION = 1024, 1280  # enough for levels of one room: 16 objects take 900 bytes


class Moment(NamedTuple):
    """One observation in a prompt."""

    sentences: Callable[[], Sequence[str]]
    action: str  # the action before it; "" at the beginning


class Prompt:
    """The prompt of one game."""

    def __init__(self, language: Language, actions: Sequence[str], window: int, rewrite: Callable[[str], str]):
        """Makes an empty prompt.

        Args:
          language: of the labels.
          actions: names of the possible actions.
          window: maximum number of observations.
          rewrite: applied to the whole text.
        """
        self._language, self._rewrite = language, rewrite
        self._head = f"{language.actions} {', '.join(actions)}"
        self._moments: collections.deque[Moment] = collections.deque(maxlen=window)

    def begin(self, goal: str, sentences: Callable[[], Sequence[str]]) -> None:
        """Starts an episode; `sentences` computes those of the first observation on demand."""
        self.goal = goal
        self._moments.clear()
        self._moments.append(Moment(sentences, ""))

    def go_on(self, action: str, sentences: Callable[[], Sequence[str]]) -> None:
        """Adds an action and the observation that follows it."""
        self._moments.append(Moment(sentences, action))

    def text(self) -> str:
        """The prompt."""
        language, moments = self._language, list(self._moments)
        taken = [*(moment.action for moment in moments[1:]), ""]
        text = f"{self._head} \n {language.goal} {self.goal}"
        for number, (moment, action) in enumerate(zip(moments, taken, strict=True)):
            seen = "".join(f"{sentence}, " for sentence in moment.sentences())
            text += f" \n {language.observation} {number}: {seen}\n {language.action} {number}: {action}"
        return self._rewrite(text)


class PromptBytes:
    """Encodes prompts for recording, as UTF-8 padded with zeros. A tokeniser in the worker can replace it."""

    def __init__(self, length: int, window: int):
        """`length`: bytes of a prompt; 0: enough for `window` observations."""
        length = length or FIXED_BYTES + BYTES_PER_OBSERVATION * window
        self.spec = ArraySpec((length,), "uint8", "text")

    def encode(self, text: str) -> np.ndarray:
        """Encodes a prompt as [L] uint8; raises UserError if it is longer."""
        data, length = text.encode(), self.spec.shape[0]
        if len(data) > length:
            raise UserError(
                f"a prompt of {len(data):,} bytes does not fit into {length:,} ({BYTES_FLAG}, or fewer observations: "
                f"--config.env.babyai.window): {text[:100]!r}..."
            )
        return np.frombuffer(data.ljust(length, b"\0"), np.uint8)


def decode(prompt: np.ndarray) -> str:
    """Returns the text of a recorded prompt."""
    return prompt.tobytes().rstrip(b"\0").decode()
