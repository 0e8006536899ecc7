"""Figures of an online reward between two rows of metrics.jsonl."""

from __future__ import annotations

import time
from collections.abc import Iterable

import numpy as np

from motif_jax.annotation.stream import Answered


class Tally:
    """Counts what happens; `figures` gives the counts since its last call."""

    def __init__(self) -> None:
        self._first_seen_s: dict[int, float] = {}  # when each question that has no answer began to wait
        self._clear()

    def _clear(self) -> None:
        self._steps = self._labelled = 0
        self._latencies: list[float] = []
        self._ages: list[float] = []
        self._asked = self._cached = self._unreadable = self._tokens = 0

    def batch(self, steps: int, labelled: int) -> None:
        """Steps of a batch, and how many of them show a caption with a label."""
        self._steps += steps
        self._labelled += labelled

    def wait(self, questions: Iterable[int]) -> None:
        """These questions were wanted for the first time, or again."""
        now = time.monotonic()
        for question in questions:
            self._first_seen_s.setdefault(question, now)

    def answers(self, answered: Iterable[Answered]) -> None:
        """What has come back."""
        now = time.monotonic()
        for one in answered:
            self._cached += one.cached
            self._asked += not one.cached
            self._tokens += one.answer.prompt_tokens + one.answer.output_tokens
            if not one.cached:
                self._latencies.append(one.seconds)
            if one.answer.yes is None:
                self._unreadable += 1
            elif one.item.number in self._first_seen_s:
                self._ages.append(now - self._first_seen_s.pop(one.item.number))

    def forget(self) -> None:
        """Nothing waits any more."""
        self._first_seen_s.clear()

    def figures(self) -> dict[str, float]:
        """Since the last call; ages are seconds from the first sight of a caption to a label that pays."""
        found: dict[str, float] = {
            "asked": self._asked,
            "cached": self._cached,
            "unreadable": self._unreadable,
            "tokens": self._tokens,
        }
        if self._steps:
            found["labelled_share"] = self._labelled / self._steps
        for name, values in (("latency_s", self._latencies), ("age_s", self._ages)):
            if values:
                found[f"{name}_p50"], found[f"{name}_p95"] = np.quantile(values, (0.5, 0.95)).tolist()
        self._clear()
        return {name: float(value) for name, value in found.items()}
