"""A policy learns: its rewards, its learner, and how rollouts of games become the learner's batches.

Stages and the scripts in examples/ use the same functions:

    learner = make_learner(model, sources, mesh, settings, mix)
    state, frozen = learner.begin(model.params)
    batch = make_place(learner)(arrays)  # of rollouts
    state, metrics = learner.update(state, frozen, batch.rollouts)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from motif_jax.devices.mesh import DATA, batch_parts, map_update, place, shard, shardings
from motif_jax.envs.world import waited
from motif_jax.learner.acting import ALONE, Acting
from motif_jax.learner.losses import calls_of
from motif_jax.learner.settings import Learning, Settings, find_algorithm
from motif_jax.learner.update import Rollouts, ShapeRewards, TrainingRewards
from motif_jax.policies.model import Model
from motif_jax.rewards.learnt_source import Mix, extrinsic_reward
from motif_jax.rewards.source import Arrays, RewardSources

Keep = Callable[[Arrays, Mapping[str, np.ndarray]], Mapping[str, Any]]  # of rollouts and their rewards by source
Arrange = Callable[[dict[str, Any], Mapping[str, np.ndarray]], dict[str, Any]]


class Learner(NamedTuple):
    """What learns from the rollouts of a policy."""

    model: Model
    sources: RewardSources
    mesh: Mesh
    settings: Settings
    make_state: Callable[[Any], Any]  # parameters -> the state before the first update
    update: Any  # compiled: (state, frozen, rollouts) -> (state, metrics)

    def begin(self, params: Any) -> tuple[Any, Any]:
        """The state before the first update, and the network's frozen parameters, on the devices."""
        return self.place(self.make_state(params)), self.place(self.model.frozen)

    def place(self, tree: Any) -> Any:
        """Puts a state, or parameters, on the devices."""
        return place(tree, self.mesh, self.model.rules)


def make_learner(
    model: Model, sources: RewardSources, mesh: Mesh, settings: Settings, mix: Mix, config: Any = None,
    world: Any = None,
) -> Learner:  # fmt: skip
    """The learner of the algorithm that `settings` name; `config`, `world`: for those with values of their own."""
    learning = Learning(model, mesh, settings, make_shape_rewards(mix, sources, model.acting))
    make_state, update = find_algorithm(settings.algorithm).make_learner(config, world, learning)
    state = jax.eval_shape(make_state, model.params)
    results = shardings(state, mesh, model.rules), NamedSharding(mesh, P())
    mapped = map_update(update, mesh, batch_axis=1, num_constants=1, results=results)
    return Learner(model, sources, mesh, settings, make_state, mapped)


def make_shape_rewards(mix: Mix, sources: RewardSources, acting: Acting = ALONE) -> ShapeRewards:
    """Makes the function that computes the learner's rewards from rollouts, with all coefficients applied."""

    def of_one_policy(rollouts: Rollouts) -> TrainingRewards:
        extrinsic = mix.extrinsic * extrinsic_reward(rollouts.reward, mix)
        intrinsic = sources.total(rollouts.reward_inputs)
        intrinsic = jnp.zeros_like(extrinsic) if intrinsic is None else intrinsic
        return TrainingRewards(extrinsic + intrinsic, extrinsic, intrinsic)

    return lambda rollouts: acting.rewards(rollouts, of_one_policy, sources)


class PlacedBatch(NamedTuple):
    """A batch on the device, and figures about it on the host."""

    rollouts: Rollouts
    rewards: dict[str, np.ndarray]  # of each source, by its name, without coefficient. [T, B] each
    ended: np.ndarray  # [T, B] bool
    first: np.ndarray  # whether each rollout begins with an episode. [B]
    played: np.ndarray  # whether the game was played; else it waited (WAIT). [T, B] bool
    kept: Mapping[str, Any] = MappingProxyType({})  # what those who watch the training keep of the arrays


def make_place(
    learner: Learner, arrange: Arrange = lambda rows, seen: rows, keep: Keep = lambda arrays, rewards: {}
) -> Callable[[Arrays], PlacedBatch]:
    """Makes the function that rewards the arrays of rollouts and places them on the devices.

    `arrange`: of the way in which games are played, from the fields of `Rollouts` and the observations as the games
    gave them. `keep` gives what stays on the host, as `PlacedBatch.kept`.
    """
    model, sources, mesh, settings = learner.model, learner.sources, learner.mesh, learner.settings
    cuts = find_algorithm(settings.algorithm).cuts_steps
    alone = jax.process_count() == 1 and batch_parts(mesh) == mesh.shape[DATA]  # hosts need equal shapes
    pack = model.pack if cuts and alone else None

    def place(arrays: Arrays) -> PlacedBatch:
        moments = sources.moments(arrays)
        rewards = sources.shape(moments)
        sources.check(rewards, arrays["reward"].shape)
        played = ~waited(arrays["action"])
        rewards = {name: np.where(played, array, 0) for name, array in rewards.items()}
        kept = keep(arrays, rewards)
        seen = {key: arrays[key] for key in model.reads}
        rows: dict[str, Any] = {key: arrays[key] for key in Rollouts._fields if key in arrays and key not in seen}
        observations = model.encode(seen)
        if pack:
            steps, games = played.shape
            observations = pack(observations, calls_of(steps, games, mesh.shape[DATA], settings, model.chunk))
        rows |= {"observations": observations, "reward_inputs": moments}
        rows["recorded"] = {key: arrays[key] for key in model.acting.recorded}
        rollouts = shard(Rollouts(**arrange(rows, seen)), mesh, axis=1)
        return PlacedBatch(
            rollouts=rollouts, rewards=rewards, first=arrays["first"][0], played=played,
            ended=arrays["terminated"] | arrays["truncated"], kept=kept,
        )  # fmt: skip

    return place


def at_position(rollouts: Rollouts, position: float, mesh: Mesh) -> Rollouts:
    """Adds the position in the schedules, in batches of steps that were played; the highest of all hosts counts."""
    columns = rollouts.first.shape[1] // jax.process_count()
    return rollouts._replace(schedule_position=shard(np.full((1, columns), position, np.float32), mesh, axis=1))
