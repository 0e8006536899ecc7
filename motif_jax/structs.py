"""Types that are passed between rooms and processes: plain, NumPy-safe, without behaviour."""

from __future__ import annotations

import contextlib
import enum
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np


class UserError(Exception):
    """Something the user can correct: one sentence naming the value and the flag. Shown without a traceback."""

    def __str__(self) -> str:
        """The sentence in one line, also if it quotes a library's message of several lines."""
        return " ".join(line.strip() for line in super().__str__().splitlines())


def refuse(*problems: tuple[object, str]) -> None:
    """Raises UserError with the sentence of the first problem that exists, which is the first value of the pair."""
    for exists, sentence in problems:
        if exists:
            raise UserError(sentence)


@contextlib.contextmanager
def naming(flag: str) -> Iterator[None]:
    """Inside this context, a UserError also names the flag of what is read."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{error} ({flag})") from error


@contextlib.contextmanager
def legible(what: str, flag: str = "", *errors: type[Exception]) -> Iterator[None]:
    """Inside this context, an error in a file from outside is a UserError; `errors`: beside OSError and ValueError."""
    kinds: tuple[type[Exception], ...] = OSError, ValueError, *errors
    try:
        yield
    except kinds as error:
        reason: object = (isinstance(error, OSError) and error.strerror) or error
        if isinstance(error, KeyError):
            reason = f"{error} is missing, or not known"
        raise UserError(f"cannot read {what}: {reason}" + (f" ({flag})" if flag else "")) from error


class Need(NamedTuple):
    """Something from outside that a stage cannot work without; looked at before the first stage of a run begins."""

    check: Callable[[], object]  # raises UserError if it is missing or cannot be used; loads no JAX
    path: Path | None = None  # what is read, which an earlier stage of the same run may still write


class DetailedError(UserError):
    """One sentence, and lines to be shown below."""

    def __init__(self, sentence: str, details: str):
        super().__init__(sentence, details)
        self.sentence, self.details = sentence, details

    def __str__(self) -> str:
        return f"{self.sentence}\n{self.details}"


class UserCodeError(DetailedError):
    """Code that the user has written raised an error, whose traceback are the details."""


class Stopped(Exception):
    """A stage was asked to stop and has saved its work; the message says how to go on."""


class Interrupted(KeyboardInterrupt):
    """A signal asked the program to end at once; the argument is the signal's number.

    It is not a plain KeyboardInterrupt: if that passes through an `exec`, as in many imports, Python ends the process
    by SIGINT at exit, and the exit status is lost.
    """


class EndStatus(enum.IntEnum):
    """Status of the episode after a step; the numbers are NLE's, up to ENDED."""

    ABORTED = -1  # time limit
    RUNNING = 0
    DEATH = 1  # NetHack itself ended: death, quitting, ascending; and games of which the world says so
    TASK_SUCCESSFUL = 2
    ENDED = 3  # the game itself ended, without success


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
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


class Meaning(NamedTuple):
    """What pages say about a figure of an episode, by the class that measures it."""

    name: str  # of the figure
    title: str = ""  # "": its name
    note: str = ""
    better: str = ""  # the better side, "higher" or "lower"; "": not known
    verb: str = ""  # "scores", of a figure that stands in place of the return: "In 100 games it scores 12.3"
    curve: bool = True  # whether training shows a curve of it
    compared: bool = True  # whether the first screen may compare it with random play


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
        return (*self[:-1], *self.figures)

    @classmethod
    def from_row(cls, row: Iterable[float], kinds: Iterable[type]) -> EpisodeInfo:
        values = [kind(value) for kind, value in zip((int, int, float, int, bool, *kinds), row, strict=True)]
        return cls._make((*values[:COMMON], tuple(values[COMMON:])))


COMMON = len(EpisodeInfo._fields) - 1  # values that every world's episodes have


class Turn(NamedTuple):
    """One utterance of an episode of text. The agent's turns have a reward, the world's have none."""

    text: str
    reward: float | None = None

    @property
    def is_action(self) -> bool:
        return self.reward is not None


class Episode(NamedTuple):
    """An episode of text, as worlds that are played by writing give it and as transcripts keep it."""

    turns: tuple[Turn, ...]  # in order; two of the agent's may follow each other
    terminal: bool  # the game itself ended, so nothing is to be expected after it; False: it was cut
    info: Mapping[str, float] = {}  # numbers about it, by name; all episodes of a store have the same names

    @property
    def episode_return(self) -> float:
        return sum(turn.reward for turn in self.turns if turn.reward is not None)
