"""The stage train_policy: trains a policy on the game's reward and other reward sources.

This module is quick to import; loop.py trains.
"""

from __future__ import annotations

from pathlib import Path

from motif_jax.actors.capacity import check_capacity
from motif_jax.devices.releases import check_saved
from motif_jax.envs.action_space import space_of
from motif_jax.envs.world import World, is_text
from motif_jax.envs.worlds import check_world, parse_options
from motif_jax.files import read_json
from motif_jax.learner.settings import find_algorithm
from motif_jax.names import check_end
from motif_jax.networks.kinds import check_reads, find_prompt_network, is_own
from motif_jax.rewards.online.online_section import ANCHORED
from motif_jax.rewards.options import OptionPlan, chosen_from, find_plan
from motif_jax.stages import Stage, check_cluster, later, lock_of_hosts, with_result
from motif_jax.stages.train_policy.section import (
    DEVICE_MEMORY,
    Policy,
    TrainConfig,
    check_batch,
    check_options,
    check_parts,
    finished,
    takes_turns,
)
from motif_jax.structs import UserError
from motif_jax.system.machine import available_mib
from motif_jax.system.meeting import find_meeting

MOST_UPDATES = 2**31 - 1  # the count is an int32
MOST_STEPS = 1_000_000  # of the optimizer per update; the device numbers them
STEP_BYTES = 1024  # least size of a step in a batch


def artefacts(workdir: Path) -> list[Path]:
    """The directory of the policy."""
    return with_result(workdir / "policy", "summary.json")


def is_complete(config: TrainConfig, workdir: Path) -> bool:
    """Whether training has reached the config's limit and its checkpoint exists."""
    file = workdir / "policy" / "summary.json"
    if not file.exists():
        return False
    done = read_json(file)
    saved = (workdir / "policy" / "checkpoints" / str(done["checkpoint"])).is_dir()
    return saved and finished(config.policy, done["env_steps"], done["seconds"])


def unused(config: TrainConfig) -> list[str]:
    """The values that another kind of online reward uses, which may change within a workdir."""
    return [] if ANCHORED.when(vars(config.policy.online)) else ["policy.online.anchor"]


def check(config: TrainConfig) -> None:
    """Raises UserError for values that cannot work."""
    section = config.policy
    world = check_world(config.env)
    if is_text(world.action):
        raise UserError(
            f"the world {world.name!r} is played by writing, but the network {section.network!r} chooses among "
            "actions: the stage train_values with --config.train_values.recipe=grpo trains a policy that writes by "
            "playing (--config.env.world, --config.policy.network)"
        )
    if section.max_episode_steps and "max_episode_steps" in parse_options(config.env["options"]):
        raise UserError(
            "the world's options have a time limit too: remove it from --config.env.options "
            "(--config.policy.max_episode_steps)"
        )
    check_reads(section.network, world.specs, world.reads, world.name)
    if is_own(section.network):
        from motif_jax.networks.own import find_encoder

        find_encoder(section.network)
    if network := find_prompt_network(section.network):
        network.check(section)
    plan = find_plan(config)
    if space_of(world):
        check_parts(section, world.name, bool(plan))
    limit = section.max_episode_steps or config.env["max_episode_steps"]
    meeting = find_meeting(config.distributed)  # raises UserError for bad values
    hosts = meeting.num_processes if meeting else 1
    find_algorithm(section.algorithm).check(section, limit, hosts, bool(plan))
    if plan:
        check_options(section)
    check_rewards(config, world, plan)
    engine = getattr(world, "engine", False)
    check_capacity(section.num_workers, section.games_per_worker, section.groups, 0, "--config.policy", engine=engine)
    if section.synchronous and section.num_workers > 1:
        raise UserError(
            f"a synchronous run has at most one worker, so that it is repeatable, not {section.num_workers} "
            "(--config.policy.synchronous, .num_workers)"
        )
    check_hosts(config)
    check_updates(section, hosts)


def check_hosts(config: TrainConfig) -> None:
    """Raises UserError if games on other hosts cannot work."""
    check_cluster(config.cluster)
    if config.cluster.game_hosts and takes_turns(config.policy):
        raise UserError(
            "updates do not wait for games on other hosts, so a run that is synchronous, or whose algorithm is "
            "on-policy, cannot use them (--config.cluster.game_hosts, --config.policy.synchronous, .algorithm)"
        )


def check_rewards(config: TrainConfig, world: World, plan: OptionPlan | None) -> None:
    """Raises UserError for rewards that do not exist or cannot work together."""
    section = config.policy
    choices = chosen_from(section, plan)
    if not plan and not section.extrinsic_coefficient and not any(choice.coefficient for choice in choices):
        raise UserError(
            "a policy needs at least one reward (--config.policy.extrinsic_coefficient, "
            ".intrinsic_coefficient, .sources)"
        )
    for choice in choices:
        choice.check(config, world)
    which = section.reward_checkpoint
    if which not in ("last", "best") and not (which.isascii() and which.isdecimal()):
        raise UserError(
            f"unknown checkpoint {which!r} of the reward (--config.policy.reward_checkpoint): choose last, best or the "
            "number of an epoch"
        )
    check_saved(section.init_from, "--config.policy.init_from")
    check_saved(section.reward_dir, "--config.policy.reward_dir")


def check_updates(section: Policy, hosts: int) -> None:
    """Raises UserError for batches that cannot be cut as asked, that are too large, or that are too many."""
    check_batch(section, num_devices=1, hosts=1)  # those that take part are known later
    if not find_algorithm(section.algorithm).from_replay and section.batch_size % section.num_minibatches:
        raise UserError(
            f"the {section.batch_size} steps of a batch cannot be cut into {section.num_minibatches} minibatches "
            "(--config.policy.batch_size, .num_minibatches)"
        )
    check_end(section.learning_rate_decay, section.anneal_learning_rate_to, "--config.policy.anneal_learning_rate_to")
    needed, available = section.batch_size // hosts * STEP_BYTES >> 20, available_mib()
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


STAGE = Stage(
    config=TrainConfig,
    sections=("policy", "profile"),
    identity=("", "env", "policy"),
    unused=unused,
    check=check,
    is_complete=is_complete,
    run=later("motif_jax.stages.train_policy.loop:train"),
    writes="--config.policy.keep_checkpoints, .milestone_every_steps",
    memory="--config.policy.num_workers, .games_per_worker, .batch_size, .network",
    device_memory=DEVICE_MEMORY,
    artefacts=artefacts,
    lock=lock_of_hosts,
)
