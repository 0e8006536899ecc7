"""From rollouts, in the order in which they come, to episodes in the order of their numbers."""

from __future__ import annotations

import numpy as np

from motif_jax.actors.layout import Full
from motif_jax.actors.pool import ActorPool
from motif_jax.preferences.pairs import Episode
from motif_jax.structs import EpisodeInfo


class EpisodeQueue:
    """Puts rollouts together to episodes, and hands these out in the order of their numbers."""

    def __init__(self, first: int):
        self.number = first  # of the episode that comes next
        self.waiting_bytes = 0
        self._open: dict[tuple[int, int, int], dict[str, list[np.ndarray]]] = {}  # by worker, group, game
        self._done: dict[int, Episode] = {}

    def take(self, pool: ActorPool, full: Full, keys: list[str]) -> None:
        """Copies a rollout's steps to the episodes that they belong to."""
        rows = {key: pool.rollouts[f"event_{key}"][full.slot] for key in keys}  # [T, E, ...]
        rows["rewards"] = pool.rollouts["reward"][full.slot]
        first = pool.rollouts["first"][full.slot]  # [T + 1, E]
        start = [0] * first.shape[1]
        for game, begins in enumerate(first[0]):
            if begins:  # what was there is of an episode that is played again, because its worker died
                self._open[full.worker, full.group, game] = {key: [] for key in rows}
        for step, game, info in pool.ended(full):
            parts = self._open[full.worker, full.group, game]
            for key, array in rows.items():
                parts[key].append(array[start[game] : step + 1, game].copy())
            if info.episode >= self.number and info.episode not in self._done:
                self._done[info.episode] = _join(info, parts)
                self.waiting_bytes += _size(self._done[info.episode])
            self._open[full.worker, full.group, game] = {key: [] for key in rows}
            start[game] = step + 1
        for game, begin in enumerate(start):
            for key, array in rows.items():
                self._open[full.worker, full.group, game][key].append(array[begin:, game].copy())

    def next(self, given_up: list[int]) -> Episode | int | None:
        """The next episode, or its number if it was given up, or None if it is not finished."""
        number = self.number
        found: Episode | int | None = self._done.pop(number, None)
        if isinstance(found, Episode):
            self.waiting_bytes -= _size(found)
        elif number in given_up:
            found = number
        if found is not None:
            self.number += 1
        return found


def _join(info: EpisodeInfo, parts: dict[str, list[np.ndarray]]) -> Episode:
    return Episode(info, {key: np.concatenate(chunks) for key, chunks in parts.items()})


def _size(episode: Episode) -> int:
    return sum(array.nbytes for array in episode.steps.values())
