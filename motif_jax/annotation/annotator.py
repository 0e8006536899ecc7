"""What all annotators share: a stream of questions goes in, a stream of answers comes out, in any order.

A question shows two captions, and asks whether the second is the better one; or it shows one, and asks whether that is
helpful. An answer is the annotator's probability of yes, which is 0, 1/2 or 1 where it says a verdict in words. The two
answers to a question asked in both orders are averaged, so that a bias to one position cancels out.

A stream of questions may pause: `PAUSE` in place of a question says that there is none at the moment, and that answers
that have come back should be given out.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol, TypeVar

Item = TypeVar("Item")


class Question(NamedTuple):
    """Two captions to compare, in the order in which they are shown; or one to judge."""

    first: str
    second: str | None = None  # None: is the first helpful?

    @property
    def turned(self) -> Question:
        """The same question in the other order."""
        assert self.second is not None, "a question about one caption has no order"
        return Question(self.second, self.first)


class Answer(NamedTuple):
    """The answer to one question, and the tokens that it took."""

    yes: float | None  # probability; None: no verdict could be read, or the question was refused
    said: str = ""  # in words: the analysis, the rules that matched, or why there is no verdict
    mass: float = 1.0  # mode score: the probability that the model gives a verdict at all
    prompt_tokens: int = 0
    cached_tokens: int = 0  # of the prompt's, those that were computed for an earlier question
    output_tokens: int = 0

    @property
    def second_better(self) -> float | None:
        """What `yes` means where two captions are compared."""
        return self.yes


class Sampling(NamedTuple):
    """How a model writes its analysis. Mode score writes nothing and does not use this."""

    temperature: float
    top_p: float
    top_k: int  # -1: all
    max_tokens: int


class Annotator(Protocol):
    """The interface of all annotators."""

    def answers(self, questions: Iterable[Question | None]) -> Iterator[tuple[Question, Answer]]:
        """Takes questions as it can use them, with pauses, and gives every one back with its answer."""

    def close(self) -> None:
        """Gives back what it holds."""


PAUSE = None  # in a stream of questions: there is none now


class Incomplete(Exception):
    """The annotator cannot go on; earlier answers are kept. The message says why, and which flag to change."""


def batches_between_pauses(questions: Iterable[Question | None], size: int) -> Iterator[list[Question]]:
    """Lists of up to `size` questions: one is given out when it is full, at a pause, and at the end."""
    batch: list[Question] = []
    for question in questions:
        if question is not PAUSE:
            batch.append(question)
        if len(batch) == size or (question is PAUSE and batch):
            yield batch
            batch = []
    if batch:
        yield batch


def batched(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Lists of `size` items; the last may be shorter."""
    iterator = iter(items)
    while batch := list(itertools.islice(iterator, size)):
        yield batch
