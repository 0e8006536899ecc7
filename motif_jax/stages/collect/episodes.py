"""Assembles episodes from rollouts, and returns them in the order of their numbers."""

from __future__ import annotations

from motif_jax.actors.layout import Full
from motif_jax.actors.pool import ActorPool
from motif_jax.episodes.pieces import Pieces
from motif_jax.preferences.pairs import Episode


class EpisodeQueue:
    """Takes rollouts in any order of games, and returns finished episodes in the order of their numbers."""

    def __init__(self, first: int):
        self.number = first  # of the episode that comes next
        self.waiting_bytes = 0
        self._pieces = Pieces()
        self._done: dict[int, Episode] = {}

    def take(self, pool: ActorPool, full: Full, keys: list[str]) -> None:
        """Copies a rollout's steps to the episodes that they belong to."""
        rows = {key: pool.rollouts[f"event_{key}"][full.slot] for key in keys}  # [T, E, ...]
        rows["rewards"] = pool.rollouts["reward"][full.slot]
        first = pool.rollouts["first"][full.slot][0]  # [E]
        for info, steps in self._pieces.take(full, rows, first, pool.ended(full)):
            if info.episode >= self.number and info.episode not in self._done:
                self._done[info.episode] = Episode(info, steps)
                self.waiting_bytes += _size(self._done[info.episode])

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


def _size(episode: Episode) -> int:
    return sum(array.nbytes for array in episode.steps.values())
