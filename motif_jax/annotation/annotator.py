"""The interface of annotators: a stream of questions in, a stream of answers out, in any order.

A question shows two captions and asks whether the second is better, or shows one and asks whether it is helpful. An
answer is P(yes); a verdict in words gives 0, 1/2 or 1. The two answers to a question asked in both orders are averaged,
so that a bias to one position cancels out.

A stream of questions may contain `PAUSE`: more questions will come later, and the annotator should yield the answers
that it has.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol, TypeVar

Item = TypeVar("Item")


class Question(NamedTuple):
    """Two captions to compare, in the order shown, or one caption to judge."""

    first: str
    second: str | None = None  # None: asks whether the first is helpful

    @property
    def turned(self) -> Question:
        assert self.second is not None, "a question about one caption has no order"
        return Question(self.second, self.first)


class QuestionAnswer(NamedTuple):
    """The answer to one question, and its number of tokens."""

    yes: float | None  # probability; None: the answer has no readable verdict, or the question was refused
    said: str = ""  # the analysis, the rules that matched, or the reason for a missing verdict
    mass: float = 1.0  # mode score: the total probability of the verdicts
    prompt_tokens: int = 0
    cached_tokens: int = 0  # the part of the prompt's tokens that the engine had cached
    output_tokens: int = 0
    refused: bool = False  # by a failing server, which may answer later

    def asked_again(self, yes: float | None, said: str, tokens: Iterable[int]) -> QuestionAnswer:
        """The answer with the verdict of a second request, and the tokens of both."""
        prompt, cached, output = tokens
        return self._replace(
            yes=yes,
            said=f"{self.said}\n[asked again] {said}",
            prompt_tokens=self.prompt_tokens + prompt,
            cached_tokens=self.cached_tokens + cached,
            output_tokens=self.output_tokens + output,
        )


class Annotator(Protocol):
    """See above."""

    model: str  # the full name, which may be known only once the model is opened; "": rules

    def answers(self, questions: Iterable[Question | None]) -> Iterator[tuple[Question, QuestionAnswer]]:
        """Consumes questions as its capacity allows, and yields every question with its answer."""

    def close(self) -> None:
        """Releases resources, if there are any that do not go with the object."""
        return


PAUSE = None  # in a stream of questions: the next question comes later


class Incomplete(Exception):
    """The annotator cannot go on; earlier answers are kept. The message gives the reason and the flag to change."""


def batches_between_pauses(questions: Iterable[Question | None], size: int) -> Iterator[list[Question]]:
    """Yields lists of up to `size` questions: when a list is full, at a pause, and at the end."""
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
    """Yields lists of `size` items; the last may be shorter."""
    iterator = iter(items)
    while batch := list(itertools.islice(iterator, size)):
        yield batch
