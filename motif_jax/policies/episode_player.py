"""A policy that plays one episode of each game in a rollout; then the game waits for the others."""

from __future__ import annotations

from typing import Any

import numpy as np

from motif_jax.envs.world import WAIT
from motif_jax.policies.player import PolicyPlayer


class EpisodePlayer(PolicyPlayer):
    """A `PolicyPlayer` for grpo and gigpo. The network does not read games that wait."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._begins, self._over = np.zeros((2, self._num_games), bool)

    def begin(self, games: np.ndarray) -> None:
        """Marks the begin of rollouts of these games. [B] indices"""
        self._begins[games] = True

    def __call__(
        self, observations: dict[str, np.ndarray], first: np.ndarray, games: np.ndarray
    ) -> tuple[np.ndarray, dict[str, Any]]:
        begins = self._begins[games]
        over = (self._over[games] | first[: len(games)]) & ~begins
        first[: len(games)] |= begins  # a game that waited for the others shows its episode's first observation again
        self._over[games], self._begins[games] = over, False
        if not over.any():
            return super().__call__(observations, first, games)
        actions = np.full(len(games), WAIT, np.int32)
        outputs: dict[str, Any] = {
            name: np.zeros((len(games), *spec.shape), spec.dtype) for name, spec in (self.outputs | self.starts).items()
        }
        outputs["version"][:] = self._played.version
        plays = np.flatnonzero(~over)
        if len(plays):
            some = {name: array[plays] for name, array in observations.items()}
            actions[plays], played_outputs = super().__call__(some, first[plays], games[plays])
            for name, array in played_outputs.items():
                outputs[name][plays] = np.asarray(array)[: len(plays)]
        return actions, outputs
