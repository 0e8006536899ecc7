"""A policy network as functions of its parameters, new or from a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from motif_jax.checkpoint import find_checkpoints, reading
from motif_jax.networks.kinds import from_record
from motif_jax.networks.policy import PolicyNetwork
from motif_jax.parameters import leaves_by_path, rebuild
from motif_jax.rewards.learnt import Reward
from motif_jax.rewards.model import make_reward_model
from motif_jax.rewards.statistics import RewardStatistics
from motif_jax.structs import UserError


class Model(NamedTuple):
    """A policy network as functions of its parameters."""

    params: Any  # initial, or from a checkpoint
    prepare: Callable[[Any], Any]  # params -> what is computed from them once
    step: Callable[..., tuple[jax.Array, jax.Array, jax.Array]]  # params, observations, first, core, prepared
    unroll: Callable[..., tuple[jax.Array, jax.Array]]
    reads: tuple[str, ...]
    core_size: int
    num_actions: int


def make_policy_model(options: Mapping[str, Any], seed: int | None) -> Model:
    """Makes a network; without a seed, `params` has shapes only.

    Args:
      options: network, num_actions, dtype; for the network `general`, also `reads`, the specs of what it reads by name.
      seed: of the initial parameters.
    """
    specs = from_record(options.get("reads", {}))

    def make() -> PolicyNetwork:
        dtype, rngs = jnp.dtype(options["dtype"]), nnx.Rngs(seed or 0)
        return PolicyNetwork(options["network"], options["num_actions"], specs=specs, dtype=dtype, rngs=rngs)

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
    """Reads a policy, its facts, and the learnt reward it was trained with, if any; only the checkpoint is needed.

    Args:
      path: a workdir, its `policy` directory, or a directory of checkpoints.
      which: "last", or the number of a checkpoint.
    """
    directory = find_checkpoints(Path(path), "policy")
    with reading(directory) as checkpoints:
        _, whole, facts = checkpoints.readable(which)
    if "learner" not in whole:
        raise UserError(f"the checkpoints in {str(directory)!r} are not of a policy")
    model = make_policy_model(facts["model"], None)
    params = rebuild(model.params, leaves_by_path(whole["learner"]["params"]), directory)
    reward = None
    if "reward" in whole:
        about, arrays = facts["reward"], whole["reward"]
        _, like = make_reward_model(about["model"], 0)
        reward = Reward(
            about["model"],
            rebuild(like, leaves_by_path(arrays["params"]), directory),
            RewardStatistics(**about["statistics"]),
            arrays["captions"],
            arrays["counts"],
            about["facts"],
        )
    return model._replace(params=params), facts, reward
