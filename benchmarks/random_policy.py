"""A policy without a network: for measuring what surrounds it, and for tests."""

from __future__ import annotations

import numpy as np

from motif_jax.structs import ArraySpec


class RandomPolicy:
    """Chooses all actions with equal probability."""

    reads: tuple[str, ...] = ()

    def __init__(self, num_actions: int):
        self.outputs: dict[str, ArraySpec] = {}
        self.starts: dict[str, ArraySpec] = {}
        self._rng = np.random.default_rng(0)
        self._num_actions = num_actions

    def room(self, count: int) -> int:
        return count

    def __call__(self, observations: dict, first: np.ndarray, games: np.ndarray) -> tuple[np.ndarray, dict]:
        return self._rng.integers(self._num_actions, size=len(games)), {}
