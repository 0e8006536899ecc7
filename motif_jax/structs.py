"""Types that are passed between rooms and processes: plain, NumPy-safe, without behaviour."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np


class UserError(Exception):
    """Something the user can correct: one sentence naming the value and the flag. Shown without a traceback."""


class UserCodeError(UserError):
    """Code that the user has written raised an error: one sentence about it, and its traceback to be shown below."""

    def __init__(self, sentence: str, traceback: str):
        super().__init__(sentence, traceback)
        self.sentence, self.traceback = sentence, traceback

    def __str__(self) -> str:
        return f"{self.sentence}\n{self.traceback}"


class Stopped(Exception):
    """A stage was asked to stop and has saved its work; the message says how to go on."""


class Interrupted(KeyboardInterrupt):
    """A signal asked the program to end at once; the argument is the signal's number.

    It is not a plain KeyboardInterrupt: if that passes through an `exec`, as in many imports, Python ends the process
    by SIGINT at exit, and the exit status is lost.
    """


class EndStatus(enum.IntEnum):
    """How the episode stands after a step; the numbers are NLE's."""

    ABORTED = -1  # time limit
    RUNNING = 0
    DEATH = 1  # the game itself ended: death, quitting, ascending
    TASK_SUCCESSFUL = 2


BYTE_VALUES = 256
IMAGE_CHANNELS = 4  # at most, of what is taken for an image
MOST_CATEGORIES = 65_536


class ArraySpec(NamedTuple):
    """Shape and dtype of one record, without the axes of time, game or slot."""

    shape: tuple[int, ...]
    dtype: str
    kind: str = ""  # what an observation is, for the networks that read it; "": by rules (networks/kinds.py)
    categories: int = 0  # how many values a category or a cell of a grid can have, from 0 on; 0: not said

    @property
    def nbytes(self) -> int:
        """Bytes of one record."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


class EpisodeInfo(NamedTuple):
    """One finished episode. The figures are those of its last moment, in the order of `World.figures`."""

    episode: int  # its number, from which its seeds, and so the whole game, follow
    steps: int
    episode_return: float  # sum of unscaled task rewards
    end_status: int  # EndStatus
    success: bool  # the task's goal was reached at least once
    figures: tuple[float, ...] = ()

    def named(self, figures: Iterable[str]) -> dict[str, float]:
        """All values by name; `figures` are the names of the world's own."""
        values = self._asdict()
        own = values.pop("figures")
        return values | dict(zip(figures, own, strict=True))

    def as_row(self) -> tuple[float, ...]:
        """The numbers in which it crosses shared memory."""
        return (*self[:-1], *self.figures)

    @classmethod
    def from_row(cls, row: Iterable[float], kinds: Iterable[type]) -> EpisodeInfo:
        """From the numbers in which it crosses shared memory, and the types of the world's figures."""
        values = [kind(value) for kind, value in zip((int, int, float, int, bool, *kinds), row, strict=True)]
        return cls._make((*values[:COMMON], tuple(values[COMMON:])))


COMMON = len(EpisodeInfo._fields) - 1  # values that every world's episodes have

AGENT, WORLD = "agent", "world"  # speakers


class Turn(NamedTuple):
    """What was said at once in an episode of text."""

    speaker: str  # AGENT or WORLD
    text: str
    reward: float = 0.0  # of the agent's turn; 0 for the world's

    @property
    def is_action(self) -> bool:
        """Whether the agent said it."""
        return self.speaker == AGENT


class TextEpisode(NamedTuple):
    """An episode of text, as a world that is played by writing gives it; `transcripts.episodes.of_game` takes it."""

    turns: tuple[Turn, ...]  # in order; two of the agent's may follow each other
    end: int  # EndStatus. Nothing follows a DEATH or TASK_SUCCESSFUL; after ABORTED or RUNNING something would have
    episode: int  # its number
    about: dict[str, Any]  # more that is known of it, as plain values: by whom it was played, where a branch begins

    @property
    def episode_return(self) -> float:
        """Sum of the rewards."""
        return sum(turn.reward for turn in self.turns)

    @property
    def info(self) -> dict[str, float]:
        """What can be said of it in numbers."""
        found: dict[str, float] = {"episode": self.episode}
        return found | {key: value for key, value in self.about.items() if type(value) is int}

    @property
    def terminal(self) -> bool:
        """Whether the episode is over, so that no value is to be expected after it."""
        return self.end in (EndStatus.DEATH, EndStatus.TASK_SUCCESSFUL)
