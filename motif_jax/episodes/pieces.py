"""Assembles complete episodes from rollouts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from motif_jax.actors.layout import Ended, FilledSlot
from motif_jax.envs.world import WAIT
from motif_jax.structs import EpisodeInfo

StepArrays = dict[str, np.ndarray]  # one row per step of an episode. [T, ...] each


def without_waits(steps: StepArrays) -> StepArrays:
    """Returns the steps without those in which the game waited."""
    actions = steps.get("action")
    if actions is None or actions.ndim > 1 or not (waits := actions == WAIT).any():
        return steps
    return {key: array[~waits] for key, array in steps.items()}


class Pieces:
    """Collects the steps of every game until its episode ends."""

    def __init__(self) -> None:
        self._open: dict[tuple[int, int, int], dict[str, list[np.ndarray]]] = {}  # by worker, group, game

    def take(
        self, full: FilledSlot, rows: Mapping[str, np.ndarray], first: np.ndarray, ended: Iterable[Ended]
    ) -> list[tuple[EpisodeInfo, StepArrays]]:
        """Appends a rollout's steps to their episodes.

        Args:
          full: worker, group and slot of the rollout.
          rows: arrays of the rollout, by name. [T, E, ...]
          first: whether the rollout's first step begins an episode. [E]
          ended: episodes that ended in it.

        Returns:
          Summary and steps of each episode that ended.
        """
        start = [0] * len(first)
        for game, begins in enumerate(first):
            if begins:  # drops the steps of an episode whose worker died, which is played again
                self._open[full.worker, full.group, game] = {key: [] for key in rows}
        finished = []
        for step, game, info in ended:
            parts = self._open[full.worker, full.group, game]
            for key, array in rows.items():
                parts[key].append(array[start[game] : step + 1, game].copy())
            finished.append((info, without_waits({key: np.concatenate(chunks) for key, chunks in parts.items()})))
            self._open[full.worker, full.group, game] = {key: [] for key in rows}
            start[game] = step + 1
        for game, begin in enumerate(start):
            for key, array in rows.items():
                self._open[full.worker, full.group, game][key].append(array[begin:, game].copy())
        return finished
