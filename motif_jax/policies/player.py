"""Runs a policy on the device for any number of games at a time, and keeps their recurrent states there."""

from __future__ import annotations

import collections
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.policies.model import Model
from motif_jax.structs import ArraySpec

EXACT = 8  # calls for up to so many groups are not padded; larger ones are padded to a power of two


class Played(NamedTuple):
    """Parameters that `PolicyPlayer` acts with."""

    params: Any
    prepared: Any  # what is computed from them once
    version: int  # number of training updates that made it


class PolicyPlayer:
    """An `inference.Policy` that acts for all requesting games in one compiled step."""

    def __init__(self, model: Model, num_games: int, group_size: int, seed: int, greedy: bool = False):
        """Compiles the step, and starts every game with an empty recurrent state.

        Args:
          model: the network; its parameters are used until `swap` replaces them.
          num_games, group_size: numbers of games in the pool, and in each of its groups.
          seed: for sampling the actions.
          greedy: take the most probable action instead of sampling.
        """
        self.reads = model.reads
        self.outputs = {
            "logits": ArraySpec((model.num_actions,), "float32"),
            "value": ArraySpec((), "float32"),
            "version": ArraySpec((), "int32"),
        }
        self.starts = {"core": ArraySpec((model.core_size,), "float32")}
        self._prepare = jax.jit(model.prepare)
        self._played = self.prepare(model.params, 0)
        self._coming: collections.deque[Played] = collections.deque()
        self._num_games, self._group_size = num_games, group_size
        self._cores = jnp.zeros((num_games + 1, model.core_size))  # the last row is for padding
        self._key, self._calls = jax.random.key(seed), 0
        self._step = jax.jit(partial(play_step, model.step, greedy), donate_argnums=1)

    def prepare(self, params: Any, version: int) -> Played:
        """Computes what `swap` needs from parameters."""
        return Played(params, self._prepare(params), version)

    def swap(self, played: Played, wait: bool) -> None:
        """Replaces the parameters once they are on the device; with `wait`, waits for that.

        Any one thread may call this; a call of the player never mixes old and new parameters.
        """
        if wait:
            jax.block_until_ready((played.params, played.prepared))
        self._coming.append(played)

    def __call__(
        self, observations: dict[str, np.ndarray], first: np.ndarray, games: np.ndarray
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """See `inference.Policy`."""
        while self._coming and _is_there(self._coming[0]):  # in order, so that a busy learner delays no call
            self._played = self._coming.popleft()
        params, prepared, version = self._played
        count = len(games)
        groups = count // self._group_size
        full = groups if groups <= EXACT else 1 << (groups - 1).bit_length()
        missing = full * self._group_size - count
        if missing:
            observations = {key: _pad(array, missing, 0) for key, array in observations.items()}
            first, games = _pad(first, missing, True), _pad(games, missing, self._num_games)
        self._cores, before, actions, logits, values = self._step(
            (params, prepared), self._cores, self._key, np.int32(self._calls), observations, first, games
        )
        self._calls += 1
        outputs = {"logits": np.asarray(logits)[:count], "value": np.asarray(values)[:count]}
        outputs |= {"version": np.full(count, version, np.int32)}
        return np.asarray(actions)[:count], outputs | {"core": before}


def play_step(
    step: Callable,
    greedy: bool,
    played: tuple[Any, Any],
    cores: jax.Array,
    key: jax.Array,
    call: jax.Array,
    observations: dict[str, jax.Array],
    first: jax.Array,
    games: jax.Array,
) -> tuple[jax.Array, ...]:
    """Acts once in some games; returns all recurrent states, these games' previous ones, actions, logits, values."""
    before = cores[games]
    params, prepared = played
    logits, values, after = step(params, observations, first, before, prepared)
    if greedy:
        actions = logits.argmax(-1)
    else:
        actions = jax.random.categorical(jax.random.fold_in(key, call), logits)
    return cores.at[games].set(after), before, actions.astype(jnp.int32), logits, values


def _is_there(played: Played) -> bool:
    """Whether all its arrays are computed."""
    return all(
        leaf.is_ready() for leaf in jax.tree.leaves((played.params, played.prepared)) if hasattr(leaf, "is_ready")
    )


def _pad(array: np.ndarray, missing: int, value: Any) -> np.ndarray:
    return np.concatenate([array, np.full((missing, *array.shape[1:]), value, array.dtype)])
