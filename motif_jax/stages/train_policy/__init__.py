"""The stage train_policy: trains a policy on the game's reward and other reward sources.

Here are its config and the checks, without JAX; loop.py trains.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from motif_jax.actors.pool import check_groups
from motif_jax.config.table import MANY_SECONDS, PATH, Flag, Number, Text, Whole, deciding, value
from motif_jax.console import clean
from motif_jax.devices.releases import needs_saved
from motif_jax.envs.world import World, is_text, space_of
from motif_jax.envs.worlds import check_world, parse_options
from motif_jax.files import read_json
from motif_jax.learner.acting import find_acting
from motif_jax.learner.settings import LearnerSection, find_algorithm
from motif_jax.names import PROMPT_NETWORKS, check_end
from motif_jax.networks.kinds import BY_SPECS, FIXED, check_own, check_reads, find_prompt_network, is_own
from motif_jax.policies.decoding import LanguageSection
from motif_jax.rewards.registry import chosen, to_number
from motif_jax.rewards.section import ANCHORED, RewardsSection
from motif_jax.stages import SUMMARY, Stage, decisive_in, find_pools, find_runner, later, lock_of_hosts, with_result
from motif_jax.stages.annotate import AnnotateConfig
from motif_jax.structs import Need, UserError
from motif_jax.system.errors import Limits
from motif_jax.system.machine import usable_cores
from motif_jax.system.meeting import find_meeting
from motif_jax.system.sizing import ask_jax, check_devices

RECENT = 100  # episodes over which the progress line and `train_until` average
UNTIL = "--config.policy.train_until"


@dataclass(frozen=True)
class Network:
    """The policy."""

    network: str = deciding(
        "reference",
        Text((*FIXED, *BY_SPECS, *PROMPT_NETWORKS), own=True),
        "reference: as published; small: for CPUs; general, film: for other games; "
        "language: reads prompts; or your own encoder as module:Class",
    )
    dtype: str = deciding("float32", Text(("float32", "bfloat16")), "type of matrix products; bfloat16: faster on GPUs")
    init_from: str = deciding("", PATH, "policy to start from: a workdir, or its checkpoints")


@dataclass(frozen=True)
class PlayingSection:
    """Games and batches."""

    num_workers: int = value(usable_cores, Whole(), "worker processes; 0: play in this process, for debugging")
    games_per_worker: int = value(64, Whole(1), "games per worker, played in parallel")
    groups: int = value(2, Whole(1), "groups of games per worker: one plays while the other waits for actions")
    rollout_length: int = deciding(32, Whole(1), "steps of a rollout")
    max_episode_steps: int = deciding(0, Whole(), "time limit of episodes in training; 0: env.max_episode_steps")
    warmup_steps: int = value(1000, Whole(0, 1_000_000), "up to this many random first actions decorrelate the games")
    hang_timeout_s: float = value(30.0, Number(0.1, MANY_SECONDS), "seconds after which a silent worker is replaced")
    wait_for_learner: bool = value(False, Flag(), "games wait for the learner: samples are one or two updates old")
    batch_size: int = deciding(4096, Whole(1), "steps per update, over all hosts")


@dataclass(frozen=True)
class Devices:
    """Devices of a host."""

    num_devices: int = value(0, Whole(), "number of devices; 0: all")
    fsdp: int = value(1, Whole(1), "shard parameters and batch over this many devices (FSDP), for large networks")
    tensor: int = value(1, Whole(1), "tensor parallelism: devices that compute each layer together")


@dataclass(frozen=True)
class Keeping:
    """Duration, checkpoints and metrics."""

    train_for_env_steps: int = value(2_000_000_000, Whole(1, 10**15), "environment steps to train for")
    train_for_seconds: float = value(
        0.0, Number(0, MANY_SECONDS), "seconds to train from the first update; 0: no limit"
    )
    train_until: str = value(
        "", Text(), "also end when a mean over the last 100 episodes is reached, as in success>=0.95 or steps<=20"
    )
    save_every_steps: int = value(10_000_000, Whole(1, 10**15), "steps between checkpoints")
    save_every_s: float = value(
        600.0,
        Number(0, MANY_SECONDS, above=True),
        "seconds between checkpoints: the most work that a kill loses; at most 60 with several hosts",
    )
    keep_checkpoints: int = value(5, Whole(1), "checkpoints to keep")
    milestone_every_steps: int = value(200_000_000, Whole(0, 10**15), "steps between permanent checkpoints; 0: none")
    log_every_s: float = value(10.0, Number(0, MANY_SECONDS, above=True), "seconds between rows of metrics")
    probe_every: int = value(1, Whole(), "updates between rows of probes.jsonl, for networks that read prompts")
    tensorboard: bool = value(True, Flag(), "also write metrics for TensorBoard")
    wandb: str = value("", Text(longest=128), "project of Weights & Biases (pip install wandb); empty: off")


@dataclass(frozen=True)
class Profile:
    """A trace of the device's work, for XProf, TensorBoard or Perfetto."""

    start_step: int = value(10, Whole(), "first update of the trace")
    num_steps: int = value(0, Whole(), "updates to trace; 0: none")


@dataclass(frozen=True)
class Policy(Keeping, Devices, LearnerSection, PlayingSection, RewardsSection, Network):
    """The section `policy`; its values are declared in the bases, of which the last comes first."""

    language: LanguageSection = field(default_factory=LanguageSection)


@dataclass(frozen=True)
class TrainConfig(AnnotateConfig):
    """The values that the stage reads; the section `annotate` names the judge of an online reward."""

    policy: Policy = field(default_factory=Policy)
    profile: Profile = field(default_factory=Profile)

    def decisive(self) -> set[str]:
        unused = set() if ANCHORED.when(vars(self.policy.online)) else {"policy.online.anchor"}
        return decisive_in(self, "", "env", "policy") - unused


def finished(section: Policy, env_steps: int, seconds: float) -> bool:
    """Whether training has reached the config's limit of steps or seconds."""
    limit = section.train_for_seconds
    return env_steps >= section.train_for_env_steps or bool(limit and seconds >= limit)


def parse_until(text: str) -> tuple[str, str, float]:
    """Parses `success>=0.95` into name, comparison and number."""
    match = re.fullmatch(r"\s*(\w+)\s*(>=|<=)\s*(\S+)\s*", text)
    if not match:
        raise UserError(f"write NAME>=NUMBER or NAME<=NUMBER, as in success>=0.95, not {clean(text, 40)!r} ({UNTIL})")
    return match[1], match[2], to_number(match[3])


def has_reached(section: Policy, recent: Mapping[str, Any]) -> bool:
    """Whether the figures of the last RECENT episodes, of which `recent` has the means, are those to end with."""
    if not section.train_until or recent["count"] < RECENT:
        return False
    name, comparison, wanted = parse_until(section.train_until)
    return bool(recent[name] >= wanted if comparison == ">=" else recent[name] <= wanted)


def takes_turns(section: Policy) -> bool:
    """Whether games wait while the learner works: in synchronous runs, and for algorithms that are on-policy."""
    return section.synchronous or find_algorithm(section.algorithm).on_policy


def splits_steps(config: TrainConfig) -> bool:
    """Whether minibatches are not made of a batch's columns; see `Algorithm.splits_steps`."""
    memory = config.policy.network not in PROMPT_NETWORKS
    return find_algorithm(config.policy.algorithm).splits_steps(config, memory)


def check_batch(config: TrainConfig, num_devices: int, hosts: int) -> int:
    """The number of rollouts in this host's share of a batch; raises UserError if devices or hosts cannot share it."""
    section = config.policy
    games, length, size = section.games_per_worker // section.groups, section.rollout_length, section.batch_size
    algorithm, minibatches, by_steps = find_algorithm(section.algorithm), section.num_minibatches, splits_steps(config)
    parts = {f"{length} steps of a rollout x {hosts} hosts x {games} games of a group": length * hosts * games}
    if not by_steps:
        what = f"{length} steps of a rollout x {num_devices} devices x {minibatches} minibatches"
        parts[what] = length * num_devices * minibatches
    else:
        parts[f"{length} steps of a rollout x {num_devices} devices"] = length * num_devices
        if not algorithm.own_minibatches:
            parts[f"{num_devices} devices x {minibatches} minibatches"] = num_devices * minibatches
    for what, count in parts.items():
        if size % count:
            raise UserError(
                f"batch_size {size} must be a multiple of {count} = {what} (--config.policy.batch_size, "
                ".rollout_length, .games_per_worker, .groups, .num_minibatches, .num_devices)"
            )
    return size // (length * hosts * games)


def is_complete(config: TrainConfig, workdir: Path) -> bool:
    """Whether training has reached the config's limit and its checkpoint exists."""
    file = workdir / "policy" / SUMMARY
    if not file.exists():
        return False
    done = read_json(file)
    saved = (workdir / "policy" / "checkpoints" / str(done["checkpoint"])).is_dir()
    reached = has_reached(config.policy, done["recent_episodes"])
    return saved and (reached or finished(config.policy, done["env_steps"], done["seconds"]))


def check(config: TrainConfig, workdir: Path) -> Iterator[Need]:
    """Raises UserError for values that cannot work; returns what is needed."""
    section = config.policy
    world = check_world(config.env)
    if is_text(world.action):
        raise UserError(
            f"the world {world.name!r} is played by writing, but the network {section.network!r} chooses among "
            "actions: the stage train_values with --config.train_values.recipe=grpo trains a policy that writes by "
            "playing (--config.env.world, --config.policy.network)"
        )
    if section.max_episode_steps and "max_episode_steps" in parse_options(config.env["options"]):
        what = "the world's options have a time limit too: remove it from --config.env.options"
        raise UserError(f"{what} (--config.policy.max_episode_steps)")
    check_reads(section.network, world.specs, world.reads, world.name)
    if is_own(section.network):
        check_own(section.network)
    if network := find_prompt_network(section.network):
        network.check(config)
    acting, algorithm = find_acting(config), find_algorithm(section.algorithm)
    if space_of(world) and section.network in PROMPT_NETWORKS:
        raise UserError(
            f"actions of the world {world.name!r} are several choices or numbers: use the network general, film or "
            "your own (--config.policy.network)"
        )
    limit = section.max_episode_steps or config.env["max_episode_steps"]
    meeting = find_meeting(config.distributed)  # raises UserError for bad values
    hosts = meeting.num_processes if meeting else 1
    algorithm.check(config, limit, hosts)
    check_rewards(config, world, acting is not None and acting.sources is not None)
    check_groups(section.games_per_worker, section.groups, "--config.policy")
    find_pools(config).check(waits=takes_turns(section))
    if section.synchronous and section.num_workers > 1:
        raise UserError(
            f"a synchronous run has at most one worker, so that it is repeatable, not {section.num_workers} "
            "(--config.policy.synchronous, .num_workers)"
        )
    check_batch(config, num_devices=1, hosts=1)  # those that take part are known later
    if section.train_until:
        name, _, wanted = parse_until(section.train_until)
        figures = ("return", "steps", "success", *world.figures)
        if name not in figures or not math.isfinite(wanted):
            raise UserError(f"{section.train_until!r} needs a finite number and one of {', '.join(figures)} ({UNTIL})")
    if section.bootstrap == "inferred" and not section.discount:
        what = "the bootstrap 'inferred' divides by the discount, which must be above 0"
        raise UserError(f"{what} (--config.policy.discount, .bootstrap)")
    check_end(section.learning_rate_decay, section.anneal_learning_rate_to, "--config.policy.anneal_learning_rate_to")
    return needs(config)


def check_rewards(config: TrainConfig, world: World, has_others: bool) -> None:
    """Raises UserError for rewards that do not exist or cannot work together; `has_others`: what acts has its own."""
    section = config.policy
    choices, which = chosen(config), section.reward_checkpoint
    if not (has_others or section.extrinsic_coefficient or any(choice.coefficient for choice in choices)):
        flags = "--config.policy.extrinsic_coefficient, .intrinsic_coefficient, .sources"
        raise UserError(f"a policy needs at least one reward ({flags})")
    for choice in choices:
        choice.check(config, world)
    if which not in ("last", "best") and not which.isdecimal():
        what = f"unknown checkpoint {which!r} of the reward: choose last, best or the number of an epoch"
        raise UserError(f"{what} (--config.policy.reward_checkpoint)")


def needs(config: TrainConfig) -> Iterator[Need]:
    """Policy, reward and language model to begin with, the files of the rewards, and devices."""
    section = config.policy
    yield from needs_saved(section.init_from, "policy", "--config.policy.init_from")
    yield from needs_saved(section.reward_dir, "reward", "--config.policy.reward_dir", section.reward_checkpoint)
    for choice in chosen(config):
        yield from choice.needs(config)
    if network := find_prompt_network(section.network):
        yield from network.needs(section)
    is_here = find_runner(config).is_here and not find_meeting(config.distributed)  # others know their own devices
    if is_here and (section.num_devices > 1 or section.fsdp * section.tensor > 1):  # asking takes seconds
        yield Need(lambda: check_own_devices(config))


def check_own_devices(config: TrainConfig) -> None:
    """Raises UserError if this machine has too few devices, or the batch cannot be cut for them."""
    section = config.policy
    if devices := ask_jax():
        check_devices(section.num_devices, section.fsdp, section.tensor, devices, "--config.policy")
        check_batch(config, (section.num_devices or devices.number) // section.tensor, hosts=1)


STAGE = Stage(
    name="train_policy",
    sections=("policy", "profile"),
    config=TrainConfig,
    folders=lambda config, workdir: with_result(workdir / "policy", SUMMARY),
    check=check,
    is_complete=is_complete,
    run=later("motif_jax.stages.train_policy.loop:train"),
    lock=lock_of_hosts,
    limits=Limits(
        "--config.policy.keep_checkpoints, .milestone_every_steps",
        "--config.policy.num_workers, .games_per_worker, .batch_size, .network",
        "--config.policy.batch_size, .num_minibatches, .network",
    ),
)
