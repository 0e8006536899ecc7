"""Saves what was learnt when another host is lost, although the update that is then in work never ends.

An update is given the memory of the state before it, and fails or waits for ever if a host dies during it. So of every
state a copy on one device is kept until the next one is computed. It costs a host the memory of two or three states,
and the time to copy one on the device.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from motif_jax.learner.update import LearnerState
from motif_jax.parallel import local_copy
from motif_jax.stages.policy_start import InUse, Keeper


class Rescue:
    """The learner's states after the last updates. Of several hosts, each has one, since any may be lost."""

    def __init__(self, open_keeper: Callable[[], Keeper]):
        """Nothing is kept yet; the checkpoints are only opened when they are needed."""
        self._open_keeper = open_keeper
        self._copies: collections.deque[tuple[LearnerState, dict[str, Any]]] = collections.deque()

    def add(self, state: LearnerState, done: dict[str, Any]) -> None:
        """Keeps the state after an update, which may still be in work, and how far it got."""
        self._copies.append((local_copy(state), dict(done)))
        while len(self._copies) > 1 and _is_ready(self._copies[1][0]):
            self._copies.popleft()

    def save(self) -> str:
        """Saves the newest state that was computed, from any thread; what to tell of it."""
        for state, done in reversed(list(self._copies)):
            if not _is_ready(state):
                continue
            try:
                arrays = jax.tree.map(np.asarray, state)
            except (RuntimeError, ValueError):  # the update failed, as its collectives do when a host is gone
                continue
            try:
                keeper = self._open_keeper()
            except InUse:
                return "what was learnt since the last checkpoint is not saved, as host 0 still holds the checkpoints"
            keeper.save(arrays, done)
            keeper.close()
            return f"all {done['env_steps']:,} steps are saved"
        return "nothing was learnt yet"


def _is_ready(state: LearnerState) -> bool:
    return all(leaf.is_ready() for leaf in jax.tree.leaves(state))
