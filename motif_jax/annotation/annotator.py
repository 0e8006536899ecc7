"""What all annotators share: a stream of questions goes in, a stream of answers comes out, in any order.

An answer is the annotator's probability that the second caption is the better one, which is 0, 1/2 or 1 where it says
a verdict in words. The two answers to a question asked in both orders are averaged, so that a bias to one position
cancels out.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol, TypeVar

Item = TypeVar("Item")


class Question(NamedTuple):
    """Two captions to compare, in the order in which they are shown."""

    first: str
    second: str

    @property
    def turned(self) -> Question:
        """The same question in the other order."""
        return Question(self.second, self.first)


class Answer(NamedTuple):
    """The answer to one question, and the tokens that it took."""

    second_better: float | None  # None: no verdict could be read, or the question was refused
    said: str = ""  # in words: the analysis, the rules that matched, or why there is no verdict
    mass: float = 1.0  # mode score: the probability that the model gives a verdict at all
    prompt_tokens: int = 0
    cached_tokens: int = 0  # of the prompt's, those that were computed for an earlier question
    output_tokens: int = 0


class Sampling(NamedTuple):
    """How a model writes its analysis. Mode score writes nothing and does not use this."""

    temperature: float
    top_p: float
    top_k: int  # -1: all
    max_tokens: int


class Annotator(Protocol):
    """The interface of all annotators."""

    def answers(self, questions: Iterable[Question]) -> Iterator[tuple[Question, Answer]]:
        """Takes questions as it can use them and gives every one back with its answer."""

    def close(self) -> None:
        """Gives back what it holds."""


class Incomplete(Exception):
    """The annotator cannot go on; earlier answers are kept. The message says why, and which flag to change."""


def batched(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Lists of `size` items; the last may be shorter."""
    iterator = iter(items)
    while batch := list(itertools.islice(iterator, size)):
        yield batch
