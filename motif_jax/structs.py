"""Types that are passed between rooms and processes: plain, NumPy-safe, without behaviour."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable
from typing import NamedTuple, get_type_hints

import numpy as np


class UserError(Exception):
    """Something the user can correct: one sentence naming the value and the flag. Shown without a traceback."""


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


class ArraySpec(NamedTuple):
    """Shape and dtype of one record, without the axes of time, game or slot."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def nbytes(self) -> int:
        """Bytes of one record."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


class EpisodeInfo(NamedTuple):
    """One finished episode. The game values are those of its last frame before the end."""

    episode: int  # its number, from which its seeds, and so the whole game, follow
    steps: int
    episode_return: float  # sum of unscaled task rewards
    end_status: int  # EndStatus
    success: bool  # the task's goal was reached at least once
    ascended: bool
    score: int
    turns: int
    depth: int
    max_depth: int
    gold: int
    experience_level: int
    scout: int  # glyphs seen, summed over the levels visited

    @classmethod
    def from_row(cls, row: Iterable[float]) -> EpisodeInfo:
        """Makes it from a row of numbers in the order of the fields, as workers write it into shared memory."""
        kinds = get_type_hints(cls).values()
        return cls(*(kind(value) for kind, value in zip(kinds, row, strict=True)))
