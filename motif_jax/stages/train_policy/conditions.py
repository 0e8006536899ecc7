"""What needs no JAX: where the hosts meet, when training is finished, and what makes an update smaller."""

from __future__ import annotations

import os

from ml_collections import ConfigDict

from motif_jax.networks.kinds import LANGUAGE

DEVICE_MEMORY = "--config.policy.batch_size, .num_minibatches, .network"  # flags that decide what an update takes of it


def coordinator(config: ConfigDict) -> str:
    """Where the hosts meet: an address, "slurm", or "" for this host alone."""
    named = config.distributed.coordinator
    if named != "auto":
        return str(named)
    tasks = os.environ.get("SLURM_STEP_NUM_TASKS", "1")  # of the srun that started this process, if one has
    return "slurm" if tasks.isdigit() and int(tasks) > 1 else ""


def finished(config: ConfigDict, env_steps: int, seconds: float) -> bool:
    """Whether training has reached the config's limit of steps or seconds."""
    limit = config.policy.train_for_seconds
    return env_steps >= config.policy.train_for_env_steps or bool(limit and seconds >= limit)


def takes_turns(section: ConfigDict) -> bool:
    """Whether games wait while the learner works: for runs that are the same twice, and for PPO."""
    return section.synchronous or section.algorithm == "ppo"


def minibatches_of_columns(section: ConfigDict) -> int:
    """How many minibatches the columns of a batch must make, a column being a game's steps in a row.

    In PPO with a network that has no memory, minibatches are made of single steps.
    """
    return 1 if section.algorithm == "ppo" and section.network == LANGUAGE else section.num_minibatches
