"""Train the policy: actors play, a learner maps its updates over all devices, the learnt reward is mixed in.

What is here is light; the training is in policy_training.py.
"""

from __future__ import annotations

import difflib
import json
import os
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from motif_jax.actors.capacity import check_capacity
from motif_jax.envs.vector import GameSettings
from motif_jax.structs import UserError

HYPERPARAMETERS = (
    "network", "dtype", "algorithm", "rollout_length", "batch_size", "discount", "num_epochs", "num_minibatches",
    "learning_rate", "anneal_learning_rate_to", "max_gradient_norm", "clip_ratio", "clip_value", "value_coefficient",
    "exploration", "exploration_coefficient", "anneal_exploration_to", "clip_rho", "clip_c", "bootstrap",
    "normalise_advantages", "normalise_over_all", "max_policy_lag", "reward_dir", "reward_checkpoint",
    "extrinsic_coefficient", "intrinsic_coefficient", "reward_scale", "reward_clip", "threshold_quantile",
    "count_exponent", "reference_alignment", "init_from",
)  # fmt: skip
MATERIAL = ("seed", "env", *(f"policy.{name}" for name in HYPERPARAMETERS))
WRITES = "--config.policy.keep_checkpoints, .milestone_every_steps"
MEMORY = "--config.policy.num_workers, .games_per_worker, .batch_size, .network"
SLURM = ("SLURM_JOB_ID", "SLURM_STEP_NODELIST", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID")  # what JAX needs
CHOICES = {
    "network": ("reference", "small"),
    "dtype": ("float32", "bfloat16"),
    "algorithm": ("appo", "impala"),
    "exploration": ("entropy", "symmetric_kl"),
    "bootstrap": ("explicit", "inferred"),
}
POSITIVE = (
    "games_per_worker", "groups", "rollout_length", "batch_size", "learning_rate", "num_epochs", "num_minibatches",
    "max_gradient_norm", "train_for_env_steps", "save_every_steps", "save_every_s", "keep_checkpoints", "log_every_s",
    "max_policy_lag", "hang_timeout_s", "clip_rho", "clip_c", "reward_clip",
)  # fmt: skip
NOT_NEGATIVE = (
    "num_workers", "num_devices", "anneal_learning_rate_to", "clip_ratio", "clip_value", "value_coefficient",
    "exploration_coefficient", "anneal_exploration_to", "train_for_seconds", "milestone_every_steps", "warmup_steps",
    "count_exponent",
)  # fmt: skip


def artefacts(workdir: Path) -> list[Path]:
    """The policy."""
    return [workdir / "policy"]


def shared(config: ConfigDict) -> bool:
    """Several hosts work in one directory."""
    return is_distributed(config)


def loads_jax(config: ConfigDict) -> bool:
    """Always."""
    return True


def is_distributed(config: ConfigDict) -> bool:
    """Whether other hosts take part."""
    return bool(coordinator(config))


def coordinator(config: ConfigDict) -> str:
    """Where the hosts meet: an address, "slurm", or "" for this host alone."""
    named = config.distributed.coordinator
    if named != "auto":
        return str(named)
    tasks = os.environ.get("SLURM_STEP_NUM_TASKS", "1")  # of the srun that started this process, if one has
    return "slurm" if tasks.isdigit() and int(tasks) > 1 else ""


def is_complete(config: ConfigDict, workdir: Path) -> bool:
    """Whether it was trained for as long as is wanted."""
    try:
        done = json.loads((workdir / "policy" / "summary.json").read_text())
        steps, seconds, checkpoint = int(done["env_steps"]), float(done["seconds"]), str(done["checkpoint"])
    except (OSError, ValueError, KeyError, TypeError):
        return False
    if not (workdir / "policy" / "checkpoints" / checkpoint).is_dir():
        return False
    return finished(config, steps, seconds)


def finished(config: ConfigDict, env_steps: int, seconds: float) -> bool:
    """Whether training may stop here."""
    limit = config.policy.train_for_seconds
    return env_steps >= config.policy.train_for_env_steps or bool(limit and seconds >= limit)


def check(config: ConfigDict) -> None:
    """Refuses values that cannot work."""
    section = config.policy
    GameSettings(**config.env).check()
    for name, choices in CHOICES.items():
        if section[name] not in choices:
            near = difflib.get_close_matches(str(section[name]), choices, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(choices)}"
            raise UserError(f"unknown {name} {section[name]!r} (--config.policy.{name}): {hint}")
    for names, fits, word in ((POSITIVE, lambda value: value > 0, "positive"),
                              (NOT_NEGATIVE, lambda value: value >= 0, "zero or more")):  # fmt: skip
        for name in names:
            if not fits(section[name]):
                raise UserError(f"{name} must be {word}, not {section[name]} (--config.policy.{name})")
    if not 0 <= section.discount <= 1:
        raise UserError(f"discount must be between 0 and 1, not {section.discount} (--config.policy.discount)")
    if section.threshold_quantile > 1:
        raise UserError(
            f"threshold_quantile must be at most 1, or negative for no threshold, not {section.threshold_quantile} "
            "(--config.policy.threshold_quantile)"
        )
    if not section.extrinsic_coefficient and not section.intrinsic_coefficient:
        raise UserError(
            "a policy without any reward learns nothing (--config.policy.extrinsic_coefficient, .intrinsic_coefficient)"
        )
    if config.seed < 0:
        raise UserError(f"seed must not be negative, not {config.seed} (--config.seed)")
    check_capacity(section.num_workers, section.games_per_worker, section.groups, 0, "--config.policy")
    if section.synchronous and section.num_workers > 1:
        raise UserError(
            f"a synchronous run has one worker, as only then it is the same twice, not {section.num_workers} "
            "(--config.policy.synchronous, .num_workers)"
        )
    games = section.games_per_worker // section.groups
    rollout = section.rollout_length * games
    columns = section.batch_size // section.rollout_length
    if section.batch_size % rollout or columns % section.num_minibatches:
        raise UserError(
            f"batch_size {section.batch_size} must be a multiple of {rollout}, the steps of {games} games in a rollout "
            f"of {section.rollout_length}, and its {columns} columns must make {section.num_minibatches} minibatches "
            "(--config.policy.batch_size, .games_per_worker, .groups, .rollout_length, .num_minibatches)"
        )
    if section.bootstrap == "inferred" and not section.discount:
        raise UserError("an inferred bootstrap divides by the discount, which is 0 (--config.policy.discount)")
    for name in ("init_from", "reward_dir"):
        if section[name] and not Path(section[name]).is_dir():
            raise UserError(f"there is no directory {section[name]!r} (--config.policy.{name})")
    profile = config.profile
    if profile.start_step < 0 or profile.num_steps < 0:
        raise UserError("a profile begins at an update and takes some (--config.profile.start_step, .num_steps)")
    check_hosts(config.distributed)


def check_hosts(section: Any) -> None:
    """Refuses half an address."""
    if section.coordinator in ("", "auto"):
        return
    if section.coordinator == "slurm":
        missing = [name for name in SLURM if name not in os.environ]
        if missing:
            raise UserError(
                f"srun did not start this: {missing[0]} is not set (--config.distributed.coordinator=slurm)"
            )
        return
    name, _, port = section.coordinator.rpartition(":")
    if not name or not (port.isdecimal() and 0 < int(port) < 2**16):
        raise UserError(f"give host:port, not {section.coordinator!r} (--config.distributed.coordinator)")
    if section.num_processes < 1 or not 0 <= section.process_id < section.num_processes:
        raise UserError(
            f"process {section.process_id} of {section.num_processes} is none "
            "(--config.distributed.num_processes, .process_id)"
        )


def run(config: ConfigDict, workdir: Path) -> None:
    """Makes `workdir/policy`."""
    from motif_jax.stages.policy_training import train

    train(config, workdir)
