"""Parts of policy training: the network as functions, what the agent is paid, rollouts as the learner takes them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh
from ml_collections import ConfigDict

from motif_jax.api import Reward, find_checkpoints, leaves_by_path, load_reward, rebuild
from motif_jax.checkpoint import reading
from motif_jax.envs.observations import scale_blstats
from motif_jax.learner.update import Rewards, Rollouts
from motif_jax.networks.policy import PolicyNetwork
from motif_jax.parallel import shard
from motif_jax.rewards.intrinsic import Mix, extrinsic_reward, intrinsic_reward
from motif_jax.rewards.statistics import RewardStatistics
from motif_jax.rewards.table import RewardTable
from motif_jax.stages import reward_setup
from motif_jax.structs import UserError

Arrays = dict[str, np.ndarray]


class Model(NamedTuple):
    """A policy network as functions of its parameters."""

    params: Any  # at the start
    prepare: Callable[[Any], Any]  # params -> what is computed of them once
    step: Callable[..., tuple[jax.Array, jax.Array, jax.Array]]  # params, observations, first, core, prepared
    unroll: Callable[..., tuple[jax.Array, jax.Array]]
    reads: tuple[str, ...]
    core_size: int
    num_actions: int


def make_model(options: Mapping[str, Any], seed: int | None) -> Model:
    """The network that `options` (network, num_actions, dtype) describe; without a seed, its parameters are shapes."""

    def make() -> PolicyNetwork:
        dtype, rngs = jnp.dtype(options["dtype"]), nnx.Rngs(seed or 0)
        return PolicyNetwork(options["network"], options["num_actions"], dtype=dtype, rngs=rngs)

    network = nnx.eval_shape(make) if seed is None else make()
    graph, params, *rest = nnx.split(network, nnx.Param, ...)

    def step(params: Any, *inputs: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
        return nnx.merge(graph, params, *rest).step(*inputs)

    def unroll(params: Any, *inputs: Any) -> tuple[jax.Array, jax.Array]:
        return nnx.merge(graph, params, *rest).unroll(*inputs)

    def prepare(params: Any) -> Any:
        return nnx.merge(graph, params, *rest).prepare()

    return Model(params, prepare, step, unroll, network.reads, network.core_size, options["num_actions"])


def read_policy(path: str | Path, which: str = "last") -> tuple[Model, dict[str, Any], Reward | None]:
    """A trained policy, what its checkpoint says, and the learnt reward it was paid; nothing else is needed.

    Args:
      path: a workdir, its `policy` directory, or a directory of checkpoints.
      which: "last", or the number of a checkpoint.
    """
    directory = find_checkpoints(Path(path), "policy")
    with reading(directory) as checkpoints:
        _, whole, facts = checkpoints.readable(which)
    if "learner" not in whole:
        raise UserError(f"the checkpoints in {str(directory)!r} are not of a policy")
    model = make_model(facts["model"], None)
    params = rebuild(model.params, leaves_by_path(whole["learner"]["params"]), directory)
    reward = None
    if "reward" in whole:
        about, arrays = facts["reward"], whole["reward"]
        _, like = reward_setup.make_model(about["model"], 0)
        reward = Reward(
            about["model"],
            rebuild(like, leaves_by_path(arrays["params"]), directory),
            RewardStatistics(**about["statistics"]),
            arrays["captions"],
            arrays["counts"],
            about["facts"],
        )
    return model._replace(params=params), facts, reward


class Pay:
    """The learnt reward as the agent gets it: which observations it needs, and what the steps of rollouts are worth."""

    def __init__(self, reward: Reward, mix: Mix, one_step_late: bool):
        """Fills the table with the captions of the training data.

        Args:
          reward: the learnt one.
          mix: threshold, exponent, coefficients.
          one_step_late: as published, a step is paid for the message that it was taken upon, rather than for the one
            that it led to; what an episode ends with is then never paid.
        """
        self.reward, self.mix = reward, mix
        self._prefix = "" if one_step_late else "event_"
        self.table: RewardTable | None = None
        if reward.reads_only_messages:
            self.table = RewardTable(lambda messages: reward(messages).normalised, reward.captions)
        options = reward.options
        self._needs = {"message": True, "blstats": options["blstats"] or options["crop"]}
        self._needs["glyphs"] = options["crop"] or options["glyphs"]

    @property
    def observations(self) -> tuple[str, ...]:
        """What must be recorded for it."""
        needed = [name for name, needs in self._needs.items() if needs]
        return tuple(f"{self._prefix}{name}" for name in [*needed, "message_count"])

    def __call__(self, arrays: Arrays) -> Arrays:
        """Normalised rewards `z` and message `counts` of rollouts' steps. [T, B] each"""
        steps = len(arrays["reward"])
        moments = {name: arrays[f"{self._prefix}{name}"][:steps] for name, needs in self._needs.items() if needs}
        counts = arrays[f"{self._prefix}message_count"][:steps]
        if self.table is not None:
            return {"z": self.table(moments["message"]), "counts": counts}
        flat = {name: array.reshape(-1, *array.shape[2:]) for name, array in moments.items()}
        message, more = flat.pop("message"), {}
        if self.reward.options["blstats"]:
            more["vector"] = scale_blstats(flat["blstats"])
        more |= {name: array for name, array in flat.items() if name != "blstats" or self.reward.options["crop"]}
        z = self.reward(message, **more).normalised
        return {"z": z.reshape(counts.shape), "counts": counts}


def make_pay(config: ConfigDict, workdir: Path) -> Pay | None:
    """The learnt reward that the config names; None where it counts nothing."""
    section = config.policy
    if not section.intrinsic_coefficient:
        return None
    source, which = Path(section.reward_dir or workdir), section.reward_checkpoint
    try:
        reward, newest = load_reward(source, which), newest_checkpoint(source)
    except UserError as error:
        raise UserError(f"{error} (--config.policy.reward_dir, .reward_checkpoint)") from None
    if which == "last" and reward.facts["epoch"] != newest:
        raise UserError(
            f"the last checkpoint of the reward in {str(source)!r}, {newest}, is damaged; one before it can be used: "
            f"--config.policy.reward_checkpoint={reward.facts['epoch']}"
        )
    return Pay(reward, make_mix(config, reward), section.reference_alignment)


def newest_checkpoint(path: Path) -> int:
    """Number of a reward's last checkpoint, readable or not."""
    return max(int(folder.name) for folder in find_checkpoints(path).iterdir() if folder.name.isdecimal())


def make_mix(config: ConfigDict, reward: Reward | None) -> Mix:
    """How the two rewards are put together."""
    section = config.policy
    known = reward is not None and section.threshold_quantile >= 0
    threshold = reward.statistics.quantile(section.threshold_quantile) if reward and known else float("-inf")
    return Mix(
        extrinsic=section.extrinsic_coefficient,
        intrinsic=section.intrinsic_coefficient if reward else 0.0,
        scale=section.reward_scale,
        clip=section.reward_clip,
        threshold=threshold,
        count_exponent=section.count_exponent,
    )


def reward_checksum(reward: Reward) -> str:
    """Tells whether a reward is the one that a policy was trained with."""
    found = hashlib.sha256(repr(reward.statistics).encode())
    for leaf in jax.tree.leaves(reward.params):
        found.update(np.asarray(leaf).tobytes())
    return found.hexdigest()


def make_shape_rewards(mix: Mix) -> Callable[[Any, Rollouts], Rewards]:
    """What the learner makes of the rewards of rollouts."""

    def shape_rewards(_: Any, rollouts: Rollouts) -> Rewards:
        extrinsic = mix.extrinsic * extrinsic_reward(rollouts.reward, mix)
        intrinsic = jnp.zeros_like(extrinsic)
        if rollouts.moments:
            intrinsic = mix.intrinsic * intrinsic_reward(rollouts.moments["z"], rollouts.moments["counts"], mix)
        return Rewards(extrinsic + intrinsic, extrinsic, intrinsic)

    return shape_rewards


class Placed(NamedTuple):
    """A batch on the device, and what is told about it on the host."""

    rollouts: Rollouts
    intrinsic: np.ndarray | None  # learnt reward of each step, without coefficient. [T, B]
    ended: np.ndarray  # [T, B] bool
    first: np.ndarray  # whether each rollout begins with an episode. [B]
    paid_share: float  # steps with a learnt reward


def make_place(model: Model, pay: Pay | None, mesh: Mesh) -> Callable[[Arrays], Placed]:
    """What the hand-off does with the arrays of rollouts."""

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
