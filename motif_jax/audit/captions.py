"""Groups of captions: those with the same rules, and those that differ only in digits."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

NOTHING = "(no message)"
SEVERAL = " + "  # between the names of several rules


class Captions(NamedTuple):
    """U different captions in G groups."""

    texts: list[str]  # [U]
    values: np.ndarray  # the reward of each, normalised; NaN where unknown. [U] float64
    group: np.ndarray  # [U] int64
    names: list[str]  # of the groups. [G]
    worth: np.ndarray  # of each group, to the judge; NaN where unknown. [G] float64
    neutral: float = 0.0  # the worth of the neutral moment, which shows no message
    degrees: bool = True  # whether differences of worth mean something, and not only their signs
    ruled: bool = False  # whether the groups are those of rules
    second: np.ndarray | None = None  # as `values`, of a reward that was learnt with another seed. [U] float64

    @property
    def shows_nothing(self) -> int:
        """The number of the neutral moment's caption; -1 without it."""
        return self.texts.index("") if "" in self.texts else -1

    def group_values(self, times: np.ndarray) -> np.ndarray:
        """The mean reward of each group over the times that its captions were seen; NaN where unknown. [U] -> [G]"""
        return mean_by(self.group, self.values, len(self.names), times)


def mean_by(number: np.ndarray, values: np.ndarray, count: int, weights: np.ndarray | None = None) -> np.ndarray:
    """The mean of the known values with each number; NaN where there are none. [T], [T] -> [count]"""
    known = ~np.isnan(values)
    weights = np.ones(len(values)) if weights is None else weights
    number, values, weights = number[known], values[known], weights[known]
    total = np.bincount(number, weights, count)
    return np.divide(np.bincount(number, weights * values, count), total, out=np.full(count, np.nan), where=total > 0)


def group_captions(texts: Sequence[str], rules: Sequence[str] | None = None) -> tuple[np.ndarray, list[str]]:
    """Puts captions into groups.

    Args:
      texts: the captions. [U]
      rules: the names of the rules that give each caption its worth, "" where none does; None without rules. [U]

    Returns:
      The group of each caption, [U] int64, and the groups' names.
    """
    numbers: dict[tuple[bool, str], int] = {}
    group = np.empty(len(texts), np.int64)
    for number, text in enumerate(texts):
        rule = rules[number] if rules is not None else ""
        group[number] = numbers.setdefault((bool(rule), rule or without_digits(text)), len(numbers))
    return group, [name for _, name in numbers]


def without_digits(text: str) -> str:
    """The caption with # for every number."""
    return re.sub(r"\d+", "#", text) or NOTHING
