"""Puts a batch on the devices: rewards its steps, encodes its texts, and keeps figures about it on the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from motif_jax.actors.handoff import Arrays
from motif_jax.actors.layout import ENDED
from motif_jax.devices.mesh import DATA, batch_parts, shard
from motif_jax.envs.world import waited
from motif_jax.learner.samples import calls_of
from motif_jax.learner.settings import Settings, find_algorithm
from motif_jax.learner.update import Rollouts
from motif_jax.networks.options import CHOICES
from motif_jax.policies.model import Model
from motif_jax.rewards.online.captioned import Captioned
from motif_jax.rewards.options import OptionPlan
from motif_jax.rewards.registry import ONLINE
from motif_jax.rewards.sources import RewardSources
from motif_jax.stages.train_policy.groups import Grouped, in_groups
from motif_jax.stages.train_policy.turns import TurnFigures, turn_figures


class Placed(NamedTuple):
    """A batch on the device, and figures about it on the host."""

    rollouts: Rollouts
    rewards: dict[str, np.ndarray]  # of each source, by its name, without coefficient. [T, B] each
    ended: np.ndarray  # [T, B] bool
    first: np.ndarray  # whether each rollout begins with an episode. [B]
    played: np.ndarray  # whether the game was played; else it waited, for a decision or other games. [T, B] bool
    turns: TurnFigures | None = None  # of a policy with options
    paid_messages: np.ndarray | None = None  # of the steps with a positive online reward, if it is audited. [P, 256]


def make_place(
    model: Model,
    sources: RewardSources,
    mesh: Mesh,
    audited: Captioned | None = None,
    plan: OptionPlan | None = None,
    grouped: Grouped | None = None,
    learner: Settings | None = None,
) -> Callable[[Arrays], Placed]:
    """Makes the function that rewards the arrays of rollouts and places them on `mesh`.

    `audited`: the online reward, if its pay is audited. `learner`: whose minibatches are packed.
    """
    packs = learner is not None and find_algorithm(learner.algorithm).cuts_steps
    if not packs or jax.process_count() > 1 or batch_parts(mesh) > mesh.shape[DATA]:  # hosts need equal shapes
        learner = None

    def place(arrays: Arrays) -> Placed:
        moments = sources.moments(arrays)
        rewards = sources.shape(moments)
        sources.check(rewards, arrays["reward"].shape)
        played = ~waited(arrays["action"])
        if plan or grouped:
            rewards = {name: np.where(played, array, 0) for name, array in rewards.items()}
        paid = arrays[audited.message][: len(played)][rewards[ONLINE] > 0] if audited is not None else None
        rows: dict[str, Any] = {
            key: arrays[key] for key in Rollouts._fields if key in arrays and key not in model.reads
        }
        seen = {key: arrays[key] for key in model.reads}
        observations = model.encode(seen)
        if learner is not None and model.pack:
            steps, games = played.shape
            calls = calls_of(steps, games, mesh.shape[DATA], learner, model.chunk)
            observations = model.pack(observations, calls)
        rows |= {"observations": observations, "reward_inputs": moments}
        if plan:
            rows["control"] = {key: arrays[key] for key in CHOICES}
        if grouped:
            rows = in_groups(rows, arrays[ENDED], seen, grouped)
        return Placed(
            rollouts=shard(Rollouts(**rows), mesh, axis=1),
            rewards=rewards,
            ended=arrays["terminated"] | arrays["truncated"],
            first=arrays["first"][0],
            played=played,
            turns=turn_figures(plan, arrays, rewards) if plan else None,
            paid_messages=paid,
        )

    return place
