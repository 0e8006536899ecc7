"""The policy on the device: it acts for any number of games at a time, and keeps the memory of each on the device."""

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

EXACT = 8  # so many groups may ask together in any number; more are filled up to a power of two


class Played(NamedTuple):
    """A policy that is played."""

    params: Any
    prepared: Any  # what is computed of them once
    version: int  # updates it has seen


class PolicyPlayer:
    """An `inference.Policy`: one compiled step for all that ask."""

    def __init__(self, model: Model, num_games: int, group_size: int, seed: int, greedy: bool = False):
        """Nothing is remembered of any game yet.

        Args:
          model: its parameters are played until `swap` brings others.
          num_games, group_size: of the pool.
          seed: of the sampling.
          greedy: take the most probable action rather than to sample.
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
        self._cores = jnp.zeros((num_games + 1, model.core_size))  # the last row is for those who only fill up
        self._key, self._calls = jax.random.key(seed), 0
        self._step = jax.jit(partial(play_step, model.step, greedy), donate_argnums=1)

    def prepare(self, params: Any, version: int) -> Played:
        """Parameters as `swap` wants them."""
        return Played(params, self._prepare(params), version)

    def swap(self, played: Played, wait: bool) -> None:
        """This is played as soon as the device has it, or, having waited for that, from the next call on.

        Any one thread may; what is read together is replaced together.
        """
        if wait:
            jax.block_until_ready((played.params, played.prepared))
        self._coming.append(played)

    def __call__(
        self, observations: dict[str, np.ndarray], first: np.ndarray, games: np.ndarray
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """See `inference.Policy`."""
        while self._coming and _is_there(self._coming[0]):  # in their order, so that a busy learner holds up none
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
    """One moment of some games: all memories, those of these games before, actions, logits, values."""
    before = cores[games]
    params, prepared = played
    logits, values, after = step(params, observations, first, before, prepared)
    if greedy:
        actions = logits.argmax(-1)
    else:
        actions = jax.random.categorical(jax.random.fold_in(key, call), logits)
    return cores.at[games].set(after), before, actions.astype(jnp.int32), logits, values


def _is_there(played: Played) -> bool:
    """Whether all of it is computed."""
    return all(
        leaf.is_ready() for leaf in jax.tree.leaves((played.params, played.prepared)) if hasattr(leaf, "is_ready")
    )


def _pad(array: np.ndarray, missing: int, value: Any) -> np.ndarray:
    return np.concatenate([array, np.full((missing, *array.shape[1:]), value, array.dtype)])
