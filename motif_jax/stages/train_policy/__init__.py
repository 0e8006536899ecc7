"""Train the policy: actors play, a learner updates on all devices, with the game's and the learnt reward mixed.

This module is quick to import; loop.py trains.
"""

from __future__ import annotations

from pathlib import Path

from ml_collections import ConfigDict

from motif_jax.actors.capacity import available_mib, check_capacity
from motif_jax.config.table import MANY_SECONDS, PATH, Flag, Number, Tables, Text, Value, Whole, check_values
from motif_jax.envs.settings import TABLE as ENV
from motif_jax.envs.settings import check_world
from motif_jax.envs.texts import texts_of
from motif_jax.envs.world import is_text
from motif_jax.learner.settings import Q_LEARNING, REPLAY_TABLE
from motif_jax.learner.settings import TABLE as LEARNER
from motif_jax.networks.kinds import BY_PROMPT, BY_SPECS, FIXED, LANGUAGE, check_reads
from motif_jax.policies.drrn_settings import TABLE as DRRN_VALUES
from motif_jax.policies.language_settings import TABLE as LANGUAGE_VALUES
from motif_jax.policies.language_settings import check_language
from motif_jax.rewards.choice import ONLINE, find_own_class, parse_sources
from motif_jax.rewards.choice import VALUES as SOURCE_VALUES
from motif_jax.rewards.online.settings import check_online
from motif_jax.stages import EXPERIMENT, Stage, is_distributed, with_result
from motif_jax.stages.annotate.setup import TABLES as ANNOTATION
from motif_jax.stages.train_policy.conditions import DEVICE_MEMORY as DEVICE_MEMORY
from motif_jax.stages.train_policy.conditions import RESCUED, check_q_learning, finished, minibatches_of_columns
from motif_jax.structs import UserError
from motif_jax.system.files import read_json
from motif_jax.system.meeting import find_meeting

TABLES: Tables = {
    "policy": {
        "network": Value(Text((*FIXED, *BY_SPECS, *BY_PROMPT)), decides=True),
        "dtype": Value(Text(("float32", "bfloat16")), decides=True),
        "init_from": Value(PATH, decides=True),
        **LANGUAGE_VALUES,
        **DRRN_VALUES,
        # what it is rewarded for
        "sources": Value(Text(longest=1000), decides=True, older="learnt"),
        "extrinsic_coefficient": Value(Number(-1e6, 1e6), decides=True),
        "intrinsic_coefficient": Value(Number(-1e6, 1e6), decides=True),
        "reward_dir": Value(PATH, decides=True),
        "reward_checkpoint": Value(Text(longest=20), decides=True),
        "reward_scale": Value(Number(-1e6, 1e6), decides=True),
        "reward_clip": Value(Number(0, above=True, infinite=True), decides=True),
        "threshold_quantile": Value(Number(high=1, infinite=True), decides=True),
        "count_exponent": Value(Number(0, infinite=True), decides=True),
        "reference_alignment": Value(
            Flag(),
            decides=True,
            differs="the learnt reward is credited to the step that caused the message, also to an episode's last",
        ),
        **SOURCE_VALUES,
        # who plays
        "num_workers": Value(Whole()),
        "games_per_worker": Value(Whole(1)),
        "groups": Value(Whole(1)),
        "rollout_length": Value(Whole(1), decides=True),
        "warmup_steps": Value(Whole(0, 1_000_000)),
        "hang_timeout_s": Value(Number(0.1, MANY_SECONDS)),
        "synchronous": Value(Flag()),
        "wait_for_learner": Value(Flag(), older=False),
        # how it learns
        "batch_size": Value(Whole(1), decides=True),
        **LEARNER,
        **REPLAY_TABLE,
        "num_devices": Value(Whole()),
        "fsdp": Value(Whole(1), older=1),
        "tensor": Value(Whole(1), older=1),
        # how long, and what is kept
        "train_for_env_steps": Value(Whole(1, 10**15)),
        "train_for_seconds": Value(Number(0, MANY_SECONDS)),
        "save_every_steps": Value(Whole(1, 10**15)),
        "save_every_s": Value(Number(0, MANY_SECONDS, above=True)),
        "keep_checkpoints": Value(Whole(1)),
        "milestone_every_steps": Value(Whole(0, 10**15)),
        "log_every_s": Value(Number(0, MANY_SECONDS, above=True)),
        "probe_every": Value(Whole(), older=1),
        "tensorboard": Value(Flag()),
        "wandb": Value(Text(longest=128)),
    },
    "profile": {
        "start_step": Value(Whole()),
        "num_steps": Value(Whole()),
    },
}
READS: Tables = EXPERIMENT | {"env": ENV} | TABLES
MOST_UPDATES = 2**31 - 1  # their count is an int32
MOST_STEPS = 1_000_000  # per update; they are numbered on the device
STEP_BYTES = 1024  # a step in a batch takes at least so many


def artefacts(workdir: Path) -> list[Path]:
    """The directory of the policy."""
    return with_result(workdir / "policy", "summary.json", RESCUED)


def is_complete(config: ConfigDict, workdir: Path) -> bool:
    """Whether the policy was trained for as long as the config asks, and its checkpoint is there."""
    try:
        done = read_json(workdir / "policy" / "summary.json")
        steps, seconds, checkpoint = int(done["env_steps"]), float(done["seconds"]), str(done["checkpoint"])
    except (OSError, ValueError, KeyError, TypeError):
        return False
    if not (workdir / "policy" / "checkpoints" / checkpoint).is_dir():
        return False
    return finished(config, steps, seconds)


def check(config: ConfigDict) -> None:
    """Refuses values that cannot work."""
    check_values(config, READS)
    section = config.policy
    world = check_world(config.env)
    if is_text(world.action):
        raise UserError(
            f"the world {world.name!r} is played by writing, where the network {section.network!r} chooses among "
            "actions (--config.env.world, --config.policy.network)"
        )
    check_reads(section.network, world.specs, world.reads, world.name)
    if section.network == LANGUAGE:
        check_language(section.language)
    check_q_learning(section)
    choices = parse_sources(section.sources, section.intrinsic_coefficient)
    if not section.extrinsic_coefficient and not any(choice.coefficient for choice in choices):
        raise UserError(
            "a policy without any reward learns nothing (--config.policy.extrinsic_coefficient, "
            ".intrinsic_coefficient, .sources)"
        )
    for choice in choices:
        find_own_class(choice)
    if any(choice.name == ONLINE for choice in choices):
        check_values(config, ANNOTATION)
        check_online(config, texts_of(config))
    which = section.reward_checkpoint
    if which not in ("last", "best") and not (which.isascii() and which.isdecimal()):
        raise UserError(
            f"unknown checkpoint {which!r} of the reward (--config.policy.reward_checkpoint): choose last, best or the "
            "number of an epoch"
        )
    if section.games_per_worker % section.groups:
        raise UserError(
            f"games_per_worker must be a multiple of {section.groups} groups, not {section.games_per_worker} "
            "(--config.policy.games_per_worker, .groups)"
        )
    check_capacity(section.num_workers, section.games_per_worker, section.groups, 0, "--config.policy")
    if section.synchronous and section.num_workers > 1:
        raise UserError(
            f"a synchronous run has one worker, as only then it is the same twice, not {section.num_workers} "
            "(--config.policy.synchronous, .num_workers)"
        )
    games = section.games_per_worker // section.groups
    rollout = section.rollout_length * games
    columns = section.batch_size // section.rollout_length
    if section.batch_size % rollout or columns % minibatches_of_columns(section):
        raise UserError(
            f"batch_size {section.batch_size} must be a multiple of {rollout}, the steps of {games} games in a rollout "
            f"of {section.rollout_length}, and its {columns} columns must make {section.num_minibatches} minibatches "
            "(--config.policy.batch_size, .games_per_worker, .groups, .rollout_length, .num_minibatches)"
        )
    if section.algorithm != Q_LEARNING and section.batch_size % section.num_minibatches:
        raise UserError(
            f"the {section.batch_size} steps of a batch cannot be cut into {section.num_minibatches} minibatches "
            "(--config.policy.batch_size, .num_minibatches)"
        )
    needed, available = section.batch_size // config.distributed.num_processes * STEP_BYTES >> 20, available_mib()
    if needed > available:
        raise UserError(
            f"a batch of {section.batch_size:,} steps needs more than {needed:,} MiB, but {available:,} MiB are "
            "available (--config.policy.batch_size)"
        )
    if section.train_for_env_steps // section.batch_size > MOST_UPDATES:
        raise UserError(
            f"{section.train_for_env_steps:,} steps in batches of {section.batch_size:,} are more than "
            f"{MOST_UPDATES:,} updates (--config.policy.train_for_env_steps, .batch_size)"
        )
    if section.num_epochs * section.num_minibatches > MOST_STEPS:
        raise UserError(
            f"{section.num_epochs:,} epochs of {section.num_minibatches:,} minibatches are more than {MOST_STEPS:,} "
            "steps of the optimizer per update (--config.policy.num_epochs, .num_minibatches)"
        )
    if section.bootstrap == "inferred" and not section.discount:
        raise UserError("an inferred bootstrap divides by the discount, which is 0 (--config.policy.discount)")
    for name in ("init_from", "reward_dir"):
        if section[name] and not Path(section[name]).is_dir():
            raise UserError(f"there is no directory {section[name]!r} (--config.policy.{name})")
    find_meeting(config.distributed)  # which checks it


def run(config: ConfigDict, workdir: Path) -> None:
    """Trains the policy and writes `workdir/policy`."""
    from motif_jax.stages.train_policy.loop import train

    train(config, workdir)


STAGE = Stage(
    tables=TABLES,
    reads=READS,
    identity=("", "env", "policy"),
    check=check,
    is_complete=is_complete,
    run=run,
    makes=("policy",),
    writes="--config.policy.keep_checkpoints, .milestone_every_steps",
    memory="--config.policy.num_workers, .games_per_worker, .batch_size, .network",
    device_memory=DEVICE_MEMORY,
    artefacts=artefacts,
    shared=is_distributed,
)
