"""What a kind of online reward is, and the simplest: labels are looked up (ONI-Retrieval).

A kind turns the store's labels into the worth of captions. The learner's thread calls `learn` and `view`; a view never
changes, and the hand-off thread computes with it.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from motif_jax.rewards.moments import HostMoments
from motif_jax.rewards.online.store import Store
from motif_jax.rewards.source import Arrays


class Kind(Protocol):
    """One way to reward captions."""

    def learn(self, store: Store, news: int, scores: HostMoments) -> None:
        """Learns from the store.

        Args:
          store: all labels.
          news: how many labels came since the last call.
          scores: moments of the scores of all steps since then.
        """

    def view(self, store: Store) -> Any:
        """What `score` and `worth` need; it never changes."""

    def score(self, view: Any, messages: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Scores of distinct captions: their messages [D, 256] uint8, and their rows, -1 for unknown ones. -> [D]"""

    def worth(self, view: Any, scores: np.ndarray) -> np.ndarray:
        """The reward of captions with these scores, before it is divided by counts. [D] float32"""

    def doubt(self, store: Store, questions: np.ndarray) -> np.ndarray:
        """How far from certain the answer to each question is, between 0 and 1/2. [Q]"""

    def forget(self) -> None:
        """For another goal: labels are gone."""

    def arrays(self) -> Arrays:
        """What it has learnt, for checkpoints."""

    def restore(self, arrays: Any) -> None:
        """Goes on from what `arrays` returned."""

    def figures(self) -> dict[str, float]:
        """Figures since the last call."""


class Retrieval:
    """A caption is worth 1 if the judge has called it helpful, and 0 otherwise."""

    def __init__(self, threshold: float):
        """`threshold`: labels are probabilities where the judge gives any; those above it count as helpful."""
        self._threshold = threshold
        self._view: np.ndarray | None = None

    def learn(self, store: Store, news: int, scores: HostMoments) -> None:
        """See `Kind`: labels are looked up, so there is nothing to learn."""
        if news:
            self._view = None

    def view(self, store: Store) -> np.ndarray:
        """The worth of each caption in the store, and 0 for all others, which have the row -1. [U + 1]"""
        if self._view is None or len(self._view) != len(store.captions) + 1:
            self._view = np.append(store.labels > self._threshold, False).astype(np.float32)
        return self._view

    def score(self, view: np.ndarray, messages: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """See `Kind`."""
        return view[rows]

    def worth(self, view: np.ndarray, scores: np.ndarray) -> np.ndarray:
        """See `Kind`."""
        return scores

    def doubt(self, store: Store, questions: np.ndarray) -> np.ndarray:
        """See `Kind`: it knows nothing of captions without a label."""
        return np.full(len(questions), 0.5)

    def forget(self) -> None:
        """See `Kind`."""
        self._view = None

    def arrays(self) -> Arrays:
        """See `Kind`."""
        return {}

    def restore(self, arrays: Any) -> None:
        """See `Kind`."""
        self._view = None

    def figures(self) -> dict[str, float]:
        """See `Kind`."""
        return {}
