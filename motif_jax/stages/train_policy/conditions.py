"""What needs no JAX: where the hosts meet, when training is finished, and what makes an update smaller."""

from __future__ import annotations

import os

from ml_collections import ConfigDict

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
