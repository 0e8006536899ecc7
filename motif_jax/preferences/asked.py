"""The answers to a shard's questions, in one or both orders of the captions, and the resulting labels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np


class Asked:
    """The answers to the K consecutive questions from number `low` on.

    An answer is P(the second caption is better), in the question's own order. A question is settled when it has an
    answer in every required order; its label is their mean.
    """

    def __init__(self, low: int, both_orders: np.ndarray):
        """Takes the first question's number and, per question, whether both orders are asked. [K] bool"""
        self._low, self._both = low, both_orders
        # P(second is better) in the question's own order, asked in that order and turned. [K, 2]
        self._answers = np.full((len(both_orders), 2), np.nan, np.float32)
        self._known = np.full(len(both_orders), np.nan, np.float32)  # labels of an earlier run

    def know(self, numbers: np.ndarray, prob: np.ndarray) -> None:
        """Stores labels of an earlier run: numbers of questions [M], P(second is better) in their own order [M]."""
        self._known[numbers - self._low] = prob

    def take(self, numbers: np.ndarray, turned: np.ndarray, prob: np.ndarray) -> int:
        """Stores answers; those to questions of other shards or without a verdict are ignored.

        Args:
          numbers: of the questions, or -1. [M]
          turned: whether the question was shown in the other order. [M] bool
          prob: P(the caption shown second is better), NaN without a verdict. [M]

        Returns:
          The number of stored answers.
        """
        mine = (numbers >= self._low) & (numbers < self._low + len(self._both)) & ~np.isnan(prob)
        at, order = numbers[mine] - self._low, turned[mine].astype(np.intp)
        self._answers[at, order] = np.where(order, 1 - prob[mine], prob[mine])
        return int(mine.sum())

    def labels(self) -> np.ndarray:
        """P(second is better) of settled questions, NaN elsewhere. [K] float32"""
        first, other = self._answers.T
        mean = np.where(self._both, (first + other) / 2, first)
        return np.where(np.isnan(self._known), mean, self._known)

    def missing(self, wanted: np.ndarray) -> Iterator[tuple[int, bool]]:
        """Yields (number, turned) for each missing answer to the `wanted` questions, their indices in order. [M]"""
        for index in wanted[np.isnan(self.labels()[wanted])].tolist():
            for turned in (False, True)[: 1 + bool(self._both[index])]:
                if np.isnan(self._answers[index, int(turned)]):
                    yield self._low + index, turned

    def both_answers(self) -> np.ndarray:
        """The answers to questions that have both, in the question's own order. [J, 2]"""
        return self._answers[~np.isnan(self._answers).any(-1)]


def to_numbers(answers: Iterable[float | None]) -> np.ndarray:
    """Answers as an array, with NaN for None (no verdict). [M] float64"""
    return np.array([np.nan if answer is None else answer for answer in answers], np.float64)
