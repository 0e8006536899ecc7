"""Connects games and policy: gathers waiting groups' observations, calls the policy once, sends the actions back."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from motif_jax.actors.layout import Request
from motif_jax.actors.pool import ActorPool
from motif_jax.structs import ArraySpec


class Policy(Protocol):
    """A function from observations to actions, for any number of games at a time."""

    reads: tuple[str, ...]  # names of the observations that it needs
    outputs: dict[str, ArraySpec]  # what it stores beside each action
    starts: dict[str, ArraySpec]  # what it stores at the beginning of a rollout

    def __call__(
        self, observations: dict[str, np.ndarray], first: np.ndarray, games: np.ndarray
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Actions, outputs and starts for `games` ([B] indices of games), of which `first` ([B]) begin an episode."""


class RandomPolicy:
    """Chooses all actions with equal probability; used to measure the speed of the pool itself."""

    reads: tuple[str, ...] = ()

    def __init__(self, num_actions: int, seed: int = 0):
        self.outputs: dict[str, ArraySpec] = {}
        self.starts: dict[str, ArraySpec] = {}
        self._rng = np.random.default_rng(seed)
        self._num_actions = num_actions

    def __call__(self, observations: dict, first: np.ndarray, games: np.ndarray) -> tuple[np.ndarray, dict]:
        """See `Policy`."""
        return self._rng.integers(self._num_actions, size=len(games)), {}


def answer(pool: ActorPool, requests: list[Request], policy: Policy) -> None:
    """Answers all requests with one call of the policy."""
    if not requests:
        return
    layout = pool.layout
    with pool.timers("gather"):
        where = [(request.slot, request.step) for request in requests]
        observations = {key: np.concatenate([pool.rollouts[key][at] for at in where]) for key in policy.reads}
        first = np.concatenate([pool.rollouts["first"][at] for at in where])
        groups = np.array([request.worker * layout.groups + request.group for request in requests])
        games = (groups[:, None] * layout.group_size + np.arange(layout.group_size)).reshape(-1)
    with pool.timers("policy"):
        actions, outputs = policy(observations, first, games)
    with pool.timers("scatter"):
        pool.act(requests, actions, outputs)
