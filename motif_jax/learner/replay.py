"""A ring buffer of rollouts on the device, and transitions that are drawn from it (experience replay, Lin 1992).

What is kept are whole batches of rollouts, the newest in the place of the oldest. The observation that follows a step
is the next one of the same rollout, so each is stored once, but for the last of a rollout.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp


class StoredSteps(NamedTuple):
    """T steps of B games; a `ReplayBuffer` has N of these batches, on another axis in front."""

    observations: Mapping[str, jax.Array]  # [T + 1, B, ...]
    action: jax.Array  # [T, B] int32
    reward: jax.Array  # what is learnt from, as it was shaped when the steps were taken. [T, B] float32
    terminated: jax.Array  # [T, B] bool
    truncated: jax.Array  # [T, B] bool


class ReplayBuffer(NamedTuple):
    """The buffer."""

    steps: StoredSteps  # [N, ...] each
    added: jax.Array  # batches that were ever added. int32


class Transitions(NamedTuple):
    """Single steps, n of them."""

    observations: Mapping[str, jax.Array]  # in which the action was chosen. [n, ...]
    action: jax.Array  # [n] int32
    reward: jax.Array  # [n] float32
    following: Mapping[str, jax.Array]  # what was seen next; after a cut (truncated), the same as before it. [n, ...]
    terminated: jax.Array  # [n] bool
    truncated: jax.Array  # [n] bool


def make_replay(
    batches: int, length: int, games: int, observations: Mapping[str, jax.ShapeDtypeStruct]
) -> ReplayBuffer:
    """An empty buffer.

    Args:
      batches: N, that it has room for.
      length: T, steps of a rollout.
      games: B, that play side by side.
      observations: shape and type of those of one game.
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
    """Puts a batch in the place of the oldest one, or changes nothing if it is not usable. usable: [] bool"""
    place = replay.added % len(replay.steps.action)
    kept = jax.tree.map(lambda ring, new: ring.at[place].set(jnp.where(usable, new, ring[place])), replay.steps, steps)
    return ReplayBuffer(kept, replay.added + usable)


def count_steps(replay: ReplayBuffer) -> jax.Array:
    """How many steps it holds. int32"""
    batches, length, games = replay.steps.action.shape
    return jnp.minimum(replay.added, batches) * (length * games)


def draw(replay: ReplayBuffer, key: jax.Array, count: int, rewarded_share: float = 0.0) -> Transitions:
    """Draws transitions with replacement; at least one batch must have been added.

    Args:
      replay: the buffer.
      key: of the draw.
      count: n, how many.
      rewarded_share: this share of the n transitions is drawn from the steps with a reward above zero, if there are
        any; the others are drawn from all steps.
    """
    steps, shape = replay.steps, replay.steps.action.shape
    of_all, of_rewarded = jax.random.split(key)
    index = jax.random.randint(of_all, (count,), 0, count_steps(replay))
    if preferred := round(count * rewarded_share):
        so_far = jnp.cumsum(steps.reward.reshape(-1) > 0)  # where nothing was added yet, rewards are zero
        nth = jax.random.randint(of_rewarded, (preferred,), 0, jnp.maximum(so_far[-1], 1)) + 1
        found = jnp.searchsorted(so_far, nth)  # the first place up to which there are so many
        index = index.at[:preferred].set(jnp.where(so_far[-1] > 0, found, index[:preferred]))
    batch, t, game = jnp.unravel_index(index, shape)
    terminated, truncated = steps.terminated[batch, t, game], steps.truncated[batch, t, game]
    after = t + 1 - (truncated & ~terminated)  # after a cut stands the first observation of another episode
    return Transitions(
        {name: array[batch, t, game] for name, array in steps.observations.items()},
        steps.action[batch, t, game],
        steps.reward[batch, t, game],
        {name: array[batch, after, game] for name, array in steps.observations.items()},
        terminated,
        truncated,
    )
