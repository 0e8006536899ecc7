"""Pairs of texts that a judge is asked about in a plan of its own, often in both orders, and its answers as arrays.

plan = PairPlan()
both = plan.both([("a newt", "a dragon")])  # the question's number, and that of its other order. [1, 2]
answers = ask_pairs(config, plan, file, opened, "my_stage")  # of stages/annotate
answers.mean(both)  # P(second is better). [1]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

LINES = 60  # of an episode that a language model is shown
LONGEST = 120  # characters of a line


class PairPlan:
    """The distinct questions, pairs of texts in the order shown, and their numbers."""

    def __init__(self) -> None:
        self.numbers: dict[tuple[str, str], int] = {}  # of the questions
        self.repeats = np.zeros(0, np.int64)  # numbers of those that are asked a second time. [S]

    @property
    def questions(self) -> list[tuple[str, str]]:
        return list(self.numbers)

    @property
    def repeated(self) -> list[tuple[str, str]]:
        questions = self.questions
        return [questions[at] for at in self.repeats]

    def add(self, questions: Iterable[tuple[str, str]], columns: int) -> np.ndarray:
        """The numbers of questions. [., columns]"""
        numbers = [self.numbers.setdefault(question, len(self.numbers)) for question in questions]
        return np.array(numbers, np.int64).reshape(-1, columns)

    def both(self, pairs: Iterable[tuple[str, str]]) -> np.ndarray:
        """The numbers of questions and of their other orders. [., 2]"""
        return self.add((one for first, second in pairs for one in ((first, second), (second, first))), 2)

    def purposes(self) -> dict[str, int]:
        """How many questions are asked for what, in words."""
        return {"for both orders": len(self.numbers)}

    def describe(self, rates: bool) -> str:
        """The numbers of questions, in words. `rates`: the judge rates the messages of all questions instead."""
        asked = ", ".join(f"{number} {what}" for what, number in self.purposes().items() if number)
        questions = f"{len(self.numbers) + len(self.repeats):,} questions ({asked}; some serve twice)"
        if not rates:
            return questions
        first, again = ({"", *chain.from_iterable(two)} for two in (self.questions, self.repeated))
        return f"about {len(first):,} messages, and again about {len(again):,}, whose ratings answer {questions}"


class PairAnswers(NamedTuple):
    """The judge's answers to a plan: P(second is better), NaN where unreadable."""

    first: np.ndarray  # to each question. [Q] float64
    again: np.ndarray  # to the repeats. [S] float64
    refused: int = 0  # questions that a failing server refused, to be asked again

    def mean(self, both: np.ndarray) -> np.ndarray:
        """P(second is better) over both orders. [., 2] -> [.]"""
        return (self.first[both[:, 0]] + 1 - self.first[both[:, 1]]) / 2


def episode_text(captions: Sequence[str], frequency: Mapping[str, int], by_rules: bool) -> str:
    """An episode as text: its distinct captions in the order of their first appearance, each with its count.

    `frequency`: how often each caption is shown in all episodes. Of more captions than LINES, the rarest are kept,
    but for rules, which read texts of any length.
    """
    times = Counter(filter(None, captions))
    kept = {*times}
    if not by_rules and len(times) > LINES:
        kept = {*sorted(times, key=frequency.__getitem__)[:LINES]}
    return "\n".join(
        " ".join(caption.split())[:LONGEST] + (f" ({count} times)" if count > 1 else "")
        for caption, count in times.items()
        if caption in kept
    )
