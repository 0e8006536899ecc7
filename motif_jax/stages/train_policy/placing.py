"""Adds the learnt reward to rollouts, and places them on the devices for the learner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from motif_jax.learner.update import Rewards, Rollouts
from motif_jax.parallel import shard
from motif_jax.policies.model import Model
from motif_jax.rewards.intrinsic import Mix, extrinsic_reward, intrinsic_reward
from motif_jax.rewards.source import Arrays, RewardSource


def make_shape_rewards(mix: Mix) -> Callable[[Any, Rollouts], Rewards]:
    """Makes the function that computes the learner's rewards from rollouts, as `mix` weights them."""

    def shape_rewards(_: Any, rollouts: Rollouts) -> Rewards:
        extrinsic = mix.extrinsic * extrinsic_reward(rollouts.reward, mix)
        intrinsic = jnp.zeros_like(extrinsic)
        if rollouts.moments:
            intrinsic = mix.intrinsic * intrinsic_reward(rollouts.moments["z"], rollouts.moments["counts"], mix)
        return Rewards(extrinsic + intrinsic, extrinsic, intrinsic)

    return shape_rewards


class Placed(NamedTuple):
    """A batch on the device, and figures about it on the host."""

    rollouts: Rollouts
    intrinsic: np.ndarray | None  # learnt reward of each step, without coefficient. [T, B]
    ended: np.ndarray  # [T, B] bool
    first: np.ndarray  # whether each rollout begins with an episode. [B]
    paid_share: float  # share of the steps with a learnt reward that is not 0


def make_place(model: Model, pay: RewardSource | None, mesh: Mesh) -> Callable[[Arrays], Placed]:
    """Makes the function that rewards the arrays of rollouts (if `pay` is given) and places them on `mesh`."""

    def place(arrays: Arrays) -> Placed:
        moments = pay(arrays) if pay else {}
        rows: dict[str, Any] = {key: arrays[key] for key in Rollouts._fields if key in arrays}
        rows |= {"observations": {key: arrays[key] for key in model.reads}, "moments": moments}
        intrinsic = intrinsic_reward(moments["z"], moments["counts"], pay.mix) if pay else None
        return Placed(
            rollouts=shard(Rollouts(**rows), mesh, axis=1),
            intrinsic=intrinsic,
            ended=arrays["terminated"] | arrays["truncated"],
            first=arrays["first"][0],
            paid_share=float((intrinsic != 0).mean()) if intrinsic is not None else 0.0,
        )

    return place
