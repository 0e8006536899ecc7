"""Train the policy: actors play, a learner updates on all devices, with the game's and the learnt reward mixed.

This module is quick to import; training.py trains.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ml_collections import ConfigDict

from motif_jax.actors.capacity import available_mib, check_capacity
from motif_jax.config.table import MANY_SECONDS, PATH, Flag, Number, Tables, Text, Whole, check_values, table_of, value
from motif_jax.envs.settings import TABLE as ENV
from motif_jax.envs.settings import check_world
from motif_jax.envs.texts import texts_of
from motif_jax.envs.world import is_text
from motif_jax.learner.settings import Q_LEARNING, REPLAY, ReplaySettings, Settings
from motif_jax.networks.kinds import BY_PROMPT, BY_SPECS, FIXED, LANGUAGE, check_reads
from motif_jax.policies.drrn_settings import DrrnPolicy
from motif_jax.policies.language_settings import LanguagePolicy, check_language
from motif_jax.rewards.choice import ONLINE, find_own_class, parse_sources
from motif_jax.rewards.choice import VALUES as SOURCE_VALUES
from motif_jax.rewards.online.settings import check_online
from motif_jax.stages import EXPERIMENT, with_result
from motif_jax.stages.annotate.setup import TABLES as ANNOTATION
from motif_jax.stages.train_policy.conditions import DEVICE_MEMORY as DEVICE_MEMORY
from motif_jax.stages.train_policy.conditions import RESCUED, check_q_learning, finished, minibatches_of_columns
from motif_jax.structs import UserError
from motif_jax.system.files import read_json
from motif_jax.system.machine import usable_cores
from motif_jax.system.meeting import find_meeting


@dataclass(frozen=True)
class Network:
    """The policy."""

    network: str = value(
        "reference",
        Text((*FIXED, *BY_SPECS, *BY_PROMPT)),
        "reference: as published; small: for CPUs; general, film: other games; language, drrn: prompts",
        decides=True,
    )
    dtype: str = value(
        "float32", Text(("float32", "bfloat16")), "type of products; bfloat16 is faster on GPUs", decides=True
    )
    init_from: str = value(
        "", PATH, "policy whose parameters to begin with: a workdir, or its checkpoints", decides=True
    )


@dataclass(frozen=True)
class Rewards:
    """What it is rewarded for."""

    sources: str = value(
        "learnt",
        Text(longest=1000),
        "rewards beside the game's: learnt,online:0.4,count:0.05,rnd:0.1,my_module:My:0.2",
        decides=True,
    )
    extrinsic_coefficient: float = value(0.1, Number(-1e6, 1e6), "factor of the game's reward", decides=True)
    intrinsic_coefficient: float = value(
        0.1, Number(-1e6, 1e6), "factor of the learnt reward; 0: none is needed", decides=True
    )
    reward_dir: str = value(
        "", PATH, "workdir or checkpoints of the learnt reward; empty: of this workdir", decides=True
    )
    reward_checkpoint: str = value("last", Text(longest=20), "last, best, or the number of an epoch", decides=True)
    reward_scale: float = value(
        0.1, Number(-1e6, 1e6), "scale of the game's reward, before it is clipped", decides=True
    )
    reward_clip: float = value(10.0, Number(0, above=True, infinite=True), "limit of the game's reward", decides=True)
    threshold_quantile: float = value(
        0.5,
        Number(high=1, infinite=True),
        "quantile up to which learnt rewards are worth 0; -1: no threshold",
        decides=True,
    )
    count_exponent: float = value(
        3.0, Number(0, infinite=True), "the n-th time in an episode, a message is worth 1 / n^exponent", decides=True
    )
    reference_alignment: bool = value(
        False,
        Flag(),
        "messages are rewarded one step late, and an episode's last never",
        decides=True,
        differs="the learnt reward is credited to the step that caused the message, also to an episode's last",
    )


@dataclass(frozen=True)
class Playing:
    """Who plays."""

    num_workers: int = value(usable_cores, Whole(), "processes that play; 0: play in this process, for debugging")
    games_per_worker: int = value(64, Whole(1), "games that a worker plays side by side")
    groups: int = value(2, Whole(1), "groups of games per worker: one plays while the other waits for actions")
    rollout_length: int = value(32, Whole(1), "steps of a rollout", decides=True)
    warmup_steps: int = value(
        1000, Whole(0, 1_000_000), "most random actions at the start of a game, so that games do not begin together"
    )
    hang_timeout_s: float = value(
        30.0, Number(0.1, MANY_SECONDS), "seconds without a sign of life after which a worker is replaced"
    )
    synchronous: bool = value(False, Flag(), "with at most one worker: the same run twice, to the bit")
    wait_for_learner: bool = value(False, Flag(), "games wait for a slower learner, so that samples are newer")
    batch_size: int = value(4096, Whole(1), "steps per update, of all hosts together", decides=True)


@dataclass(frozen=True)
class Devices:
    """Devices of a host."""

    num_devices: int = value(0, Whole(), "devices to use; 0: all")
    fsdp: int = value(1, Whole(1), "devices among which parameters and the batch are cut, for large networks")
    tensor: int = value(1, Whole(1), "devices that compute each layer together, from the same part of the batch")


@dataclass(frozen=True)
class Keeping:
    """How long it trains, and what is kept."""

    train_for_env_steps: int = value(2_000_000_000, Whole(1, 10**15), "steps of the game to train for")
    train_for_seconds: float = value(
        0.0, Number(0, MANY_SECONDS), "seconds to train for, after the first update; 0: no limit"
    )
    save_every_steps: int = value(10_000_000, Whole(1, 10**15), "steps between checkpoints")
    save_every_s: float = value(600.0, Number(0, MANY_SECONDS, above=True), "most seconds of work that a kill can cost")
    keep_checkpoints: int = value(5, Whole(1), "checkpoints to keep")
    milestone_every_steps: int = value(
        200_000_000, Whole(0, 10**15), "steps between checkpoints that are never removed; 0: none"
    )
    log_every_s: float = value(10.0, Number(0, MANY_SECONDS, above=True), "seconds between rows of metrics")
    probe_every: int = value(1, Whole(), "updates between rows of probes.jsonl, of networks that read prompts")
    tensorboard: bool = value(True, Flag(), "write metrics also for TensorBoard")
    wandb: str = value("", Text(longest=128), "project of Weights & Biases, which must be installed; empty: none")


@dataclass(frozen=True)
class Profile:
    """A trace of the device's work, for XProf, TensorBoard or Perfetto."""

    start_step: int = value(10, Whole(), "first update of the trace")
    num_steps: int = value(0, Whole(), "updates to trace; 0: none")


TABLES: Tables = {
    "policy": table_of(Network)
    | table_of(LanguagePolicy, "language")
    | table_of(DrrnPolicy, "drrn")
    | table_of(Rewards)
    | SOURCE_VALUES
    | table_of(Playing)
    | table_of(Settings)
    | table_of(ReplaySettings, REPLAY)
    | table_of(Devices)
    | table_of(Keeping),
    "profile": table_of(Profile),
}
READS: Tables = EXPERIMENT | {"env": ENV} | TABLES
IDENTITY = ("", "env", "policy")
MAKES: tuple[str, ...] = ("policy",)
WRITES = "--config.policy.keep_checkpoints, .milestone_every_steps"
MEMORY = "--config.policy.num_workers, .games_per_worker, .batch_size, .network"
MOST_UPDATES = 2**31 - 1  # their count is an int32
MOST_STEPS = 1_000_000  # per update; they are numbered on the device
STEP_BYTES = 1024  # a step in a batch takes at least so many


def artefacts(workdir: Path) -> list[Path]:
    """The directory of the policy."""
    return with_result(workdir / "policy", "summary.json", RESCUED)


def shared(config: ConfigDict) -> bool:
    """Whether other jobs may work in the workdir: the hosts of a distributed run do."""
    return is_distributed(config)


def loads_jax(config: ConfigDict) -> bool:
    """Returns True: the stage always loads JAX."""
    return True


def is_distributed(config: ConfigDict) -> bool:
    """Whether other hosts take part."""
    return find_meeting(config.distributed) is not None


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
    from motif_jax.stages.train_policy.training import train

    train(config, workdir)
