"""Connects games and policy: gathers the observations of waiting groups, calls the policy, sends the actions back."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from motif_jax.actors.layout import Request
from motif_jax.actors.pool import ActorPool
from motif_jax.actors.rows import find_places
from motif_jax.structs import ArraySpec


class BatchedPolicy(Protocol):
    """A function from observations to actions, for any number of games."""

    reads: tuple[str, ...]  # names of the required observations
    outputs: dict[str, ArraySpec]  # arrays stored with each action
    starts: dict[str, ArraySpec]  # arrays stored with the first action of a rollout

    def room(self, count: int) -> int:
        """The padded number of games in a call for `count` games, at least `count`."""

    def __call__(
        self, observations: dict[str, np.ndarray], first: np.ndarray, games: np.ndarray
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Actions, and outputs with starts, for `games` ([B] indices); `first` [B]: an episode begins.

        Observations and `first` are padded with zeros to `room` rows.
        """


class RandomPolicy:
    """Chooses all actions with equal probability; for measuring the pool's own speed."""

    reads: tuple[str, ...] = ()

    def __init__(self, num_actions: int, seed: int = 0):
        self.outputs: dict[str, ArraySpec] = {}
        self.starts: dict[str, ArraySpec] = {}
        self._rng = np.random.default_rng(seed)
        self._num_actions = num_actions

    def room(self, count: int) -> int:
        """See `BatchedPolicy`."""
        return count

    def __call__(self, observations: dict, first: np.ndarray, games: np.ndarray) -> tuple[np.ndarray, dict]:
        """See `BatchedPolicy`."""
        return self._rng.integers(self._num_actions, size=len(games)), {}


def answer(pool: ActorPool, requests: list[Request], policy: BatchedPolicy) -> None:
    """Answers all requests with one call of the policy."""
    if not requests:
        return
    layout = pool.layout
    with pool.timers("gather"):
        groups = [request.worker * layout.groups + request.group for request in requests]
        games = np.arange(pool.num_games).reshape(-1, layout.group_size)[groups].reshape(-1)
        places = find_places([(request.slot, request.step) for request in requests])
        room = policy.room(len(games))
        observations = {key: pool.rows.read(key, places, room) for key in policy.reads}
        first = pool.rows.read("first", places, room)
    with pool.timers("policy"):
        actions, outputs = policy(observations, first, games)
    with pool.timers("scatter"):
        pool.act(requests, actions, outputs)
