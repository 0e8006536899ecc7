"""Makes batches of full slots: stacks their rollouts for the learner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from motif_jax.actors.layout import ENDED, GAME, Ended, FilledSlot, Request
from motif_jax.actors.pool import ActorPool
from motif_jax.envs.world import waited
from motif_jax.system.metrics import Timers

Arrays = dict[str, np.ndarray]


class RolloutBatch(NamedTuple):
    """Rollouts stacked along the batch axis, B games in all."""

    arrays: Any  # result of `place` for {key: [T, T + 1 or 1, B, ...]}
    fulls: list[FilledSlot]  # the rollouts in order, E of the B columns each
    episodes: list[list[Ended]]  # the episodes that ended in each rollout
    steps: int  # of games: T * B, without those in which a game waits


def make_batch(
    pool: ActorPool, fulls: list[FilledSlot], place: Callable[[Arrays], Any], timers: Timers, *, hold: bool = False
) -> RolloutBatch:
    """Stacks rollouts and calls `place` on the arrays; releases the slots, unless the caller is to `hold` them."""
    with timers("stack"):
        arrays = {key: np.concatenate([array[full.slot] for full in fulls], 1) for key, array in pool.rollouts.items()}
        arrays[GAME] = np.concatenate([games_of(pool, full) for full in fulls])[None]  # [1, B]
        episodes = [pool.ended(full) for full in fulls]
        if pool.layout.alike > 1:
            arrays[ENDED] = first_ends(episodes, pool.layout.group_size)
        if not hold:
            for full in fulls:
                pool.release(full)
    steps = int(np.count_nonzero(~waited(arrays["action"])))
    with timers("place"):
        placed = place(arrays)
    return RolloutBatch(placed, fulls, episodes, steps)


def games_of(pool: ActorPool, slot: FilledSlot | Request) -> np.ndarray:
    """Returns the indices in the whole pool of the games in a slot. [E]"""
    size = pool.layout.group_size
    return (slot.worker * pool.layout.groups + slot.group) * size + np.arange(size)


def first_ends(episodes: list[list[Ended]], size: int) -> np.ndarray:
    """Returns number and steps of the first episode that ended in each column; -1 for none. [2, B]"""
    ends = np.full((2, len(episodes), size), -1, np.int64)
    for slot, ended in enumerate(episodes):
        for _, game, info in reversed(ended):
            ends[:, slot, game] = info.episode, info.steps
    return ends.reshape(2, -1)
