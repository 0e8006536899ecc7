"""Adds what the reward sources give to rollouts, and places them on the devices for the learner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from motif_jax.devices.mesh import shard
from motif_jax.learner.update import Rewards, Rollouts
from motif_jax.policies.model import Model
from motif_jax.rewards.intrinsic import Mix, extrinsic_reward
from motif_jax.rewards.source import Arrays
from motif_jax.rewards.sources import RewardSources


def make_shape_rewards(mix: Mix, sources: RewardSources) -> Callable[[Any, Rollouts], Rewards]:
    """Makes the function that computes the learner's rewards from rollouts, with all coefficients applied.

    Args:
      mix: how the game's reward is scaled and weighted.
      sources: what else rewards the agent.
    """

    def shape_rewards(_: Any, rollouts: Rollouts) -> Rewards:
        extrinsic = mix.extrinsic * extrinsic_reward(rollouts.reward, mix)
        intrinsic = sources.total(rollouts.moments)
        intrinsic = jnp.zeros_like(extrinsic) if intrinsic is None else intrinsic
        return Rewards(extrinsic + intrinsic, extrinsic, intrinsic)

    return shape_rewards


class Placed(NamedTuple):
    """A batch on the device, and figures about it on the host."""

    rollouts: Rollouts
    rewards: dict[str, np.ndarray]  # of each source, by its name, without coefficient. [T, B] each
    ended: np.ndarray  # [T, B] bool
    first: np.ndarray  # whether each rollout begins with an episode. [B]


def make_place(model: Model, sources: RewardSources, mesh: Mesh) -> Callable[[Arrays], Placed]:
    """Makes the function that rewards the arrays of rollouts and places them on `mesh`."""

    def place(arrays: Arrays) -> Placed:
        moments = sources.moments(arrays)
        rewards = sources.shape(moments)
        sources.check(rewards, arrays["reward"].shape)
        rows: dict[str, Any] = {key: arrays[key] for key in Rollouts._fields if key in arrays}
        rows |= {"observations": model.encode({key: arrays[key] for key in model.reads}), "moments": moments}
        return Placed(
            rollouts=shard(Rollouts(**rows), mesh, axis=1),
            rewards=rewards,
            ended=arrays["terminated"] | arrays["truncated"],
            first=arrays["first"][0],
        )

    return place
