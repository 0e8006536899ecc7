"""A ring buffer of rollouts on the device, and draws of transitions from it (experience replay, Lin 1992).

The buffer stores whole batches of rollouts; the newest batch replaces the oldest. The observation after a step is the
rollout's next one, so only observations at the borders of rollouts are stored twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp


class StoredSteps(NamedTuple):
    """T steps of B games; a `ReplayBuffer` has N of these batches, on an additional leading axis."""

    observations: Mapping[str, jax.Array]  # [T + 1, B, ...]
    action: jax.Array  # [T, B] int32
    reward: jax.Array  # shaped when the steps were taken. [T, B] float32
    terminated: jax.Array  # [T, B] bool
    truncated: jax.Array  # [T, B] bool


class ReplayBuffer(NamedTuple):
    """The buffer."""

    steps: StoredSteps  # [N, ...] each
    added: jax.Array  # total number of added batches. int32


class Transitions(NamedTuple):
    """n single steps."""

    observations: Mapping[str, jax.Array]  # before the action. [n, ...]
    action: jax.Array  # [n] int32
    reward: jax.Array  # [n] float32
    following: Mapping[str, jax.Array]  # after the action; before it if truncated. [n, ...]
    terminated: jax.Array  # [n] bool
    truncated: jax.Array  # [n] bool


def make_replay(
    batches: int, length: int, games: int, observations: Mapping[str, jax.ShapeDtypeStruct]
) -> ReplayBuffer:
    """Makes an empty buffer.

    Args:
      batches: N, the capacity.
      length: T, steps of a rollout.
      games: B, number of games.
      observations: shape and type of one game's observations.
    """

    def zeros(moments: int, shape: tuple[int, ...], dtype: jax.typing.DTypeLike) -> jax.Array:
        return jnp.zeros((batches, moments, games, *shape), dtype)

    return ReplayBuffer(
        StoredSteps(
            {name: zeros(length + 1, spec.shape, spec.dtype) for name, spec in observations.items()},
            zeros(length, (), jnp.int32),
            zeros(length, (), jnp.float32),
            zeros(length, (), bool),
            zeros(length, (), bool),
        ),
        jnp.zeros((), jnp.int32),
    )


def add(replay: ReplayBuffer, steps: StoredSteps, usable: jax.Array | bool = True) -> ReplayBuffer:
    """Replaces the oldest batch by a new one; does nothing if not `usable`, [] bool."""
    place = replay.added % len(replay.steps.action)
    kept = jax.tree.map(lambda ring, new: ring.at[place].set(jnp.where(usable, new, ring[place])), replay.steps, steps)
    return ReplayBuffer(kept, replay.added + usable)


def count_steps(replay: ReplayBuffer) -> jax.Array:
    """Returns the number of stored steps. int32"""
    batches, length, games = replay.steps.action.shape
    return jnp.minimum(replay.added, batches) * (length * games)


def draw(replay: ReplayBuffer, key: jax.Array, count: int, rewarded_share: float = 0.0) -> Transitions:
    """Draws transitions with replacement; at least one batch must have been added.

    Args:
      replay: the buffer.
      key: of the draw.
      count: n, number of transitions.
      rewarded_share: share of the n transitions that is drawn from steps with a positive reward, if any exist; the rest
        is drawn from all steps.
    """
    steps, shape = replay.steps, replay.steps.action.shape
    of_all, of_rewarded = jax.random.split(key)
    index = jax.random.randint(of_all, (count,), 0, count_steps(replay))
    if preferred := round(count * rewarded_share):
        so_far = jnp.cumsum(steps.reward.reshape(-1) > 0)  # rewards are zero in unused places
        nth = jax.random.randint(of_rewarded, (preferred,), 0, jnp.maximum(so_far[-1], 1)) + 1
        found = jnp.searchsorted(so_far, nth)  # the place of the nth rewarded step
        index = index.at[:preferred].set(jnp.where(so_far[-1] > 0, found, index[:preferred]))
    batch, t, game = jnp.unravel_index(index, shape)
    terminated, truncated = steps.terminated[batch, t, game], steps.truncated[batch, t, game]
    after = t + 1 - (truncated & ~terminated)  # the observation after a cut belongs to another episode
    return Transitions(
        {name: array[batch, t, game] for name, array in steps.observations.items()},
        steps.action[batch, t, game],
        steps.reward[batch, t, game],
        {name: array[batch, after, game] for name, array in steps.observations.items()},
        terminated,
        truncated,
    )
