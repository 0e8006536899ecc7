"""Assembles episodes from rollouts, and returns them in the order of their numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from motif_jax.actors.acting import BatchedPolicy, answer
from motif_jax.actors.layout import Full
from motif_jax.actors.pool import ActorPool
from motif_jax.episodes.pieces import Pieces
from motif_jax.preferences.pairs import FinishedEpisode

MAX_WAITING_BYTES = 512 * 2**20  # of finished episodes that wait for an earlier one


class EpisodeQueue:
    """Takes rollouts in any order of games, and returns finished episodes in the order of their numbers."""

    def __init__(self, first: int):
        self.number = first  # of the next episode
        self.waiting_bytes = 0
        self._pieces = Pieces()
        self._done: dict[int, FinishedEpisode] = {}

    def take(self, pool: ActorPool, full: Full, names: Mapping[str, str]) -> None:
        """Copies a rollout's steps to their episodes.

        `names`: name of an array in an episode -> its name in a rollout.
        """
        length = pool.layout.rollout_length  # arrays of observations have one row more
        rows = {name: pool.rollouts[key][full.slot][:length] for name, key in names.items()}  # [T, E, ...]
        first = pool.rollouts["first"][full.slot][0]  # [E]
        for info, steps in self._pieces.take(full, rows, first, pool.ended(full)):
            if info.episode >= self.number and info.episode not in self._done:
                self._done[info.episode] = FinishedEpisode(info, steps)
                self.waiting_bytes += _size(self._done[info.episode])

    def next(self, given_up: list[int]) -> FinishedEpisode | int | None:
        """The next episode, or its number if it was given up, or None if it is not finished."""
        number = self.number
        found: FinishedEpisode | int | None = self._done.pop(number, None)
        if isinstance(found, FinishedEpisode):
            self.waiting_bytes -= _size(found)
        elif number in given_up:
            found = number
        if found is not None:
            self.number += 1
        return found


def _size(episode: FinishedEpisode) -> int:
    return sum(array.nbytes for array in episode.steps.values())


def play_in_order(
    pool: ActorPool, policy: BatchedPolicy | None, names: Mapping[str, str], first: int
) -> Iterator[list[FinishedEpisode | int]]:
    """Plays without end, and yields episodes in the order of their numbers.

    If `policy` is None, scripted players play. `names`: the arrays to keep; see `EpisodeQueue.take`.

    Yields:
      After each poll of the pool, the next episodes that are finished, perhaps none. A number stands for an episode
      that was given up.
    """
    episodes = EpisodeQueue(first)
    held: list[Full] = []
    while True:
        requests, fulls = pool.poll(0.2)
        if policy:
            answer(pool, requests, policy)
        for full in fulls:
            episodes.take(pool, full, names)
            held.append(full)
        # Memory is bounded while all others wait for one game: only its group gets its slots back.
        kept, held = held, []
        for full in kept:
            if episodes.waiting_bytes < MAX_WAITING_BYTES or pool.is_responsible_for(full, episodes.number):
                pool.release(full)
            else:
                held.append(full)
        ready = []
        while (one := episodes.next(pool.given_up)) is not None:
            ready.append(one)
        yield ready
