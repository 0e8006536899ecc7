"""Assembles policy training from the config: network, reward sources, learner, devices, games, checkpoints."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import motif_jax
from motif_jax.actors.acting import Arrays, AsyncLoop, OverlappedLoop, RolloutLoop, SyncLoop
from motif_jax.actors.pool import ActorPool
from motif_jax.actors.worker import ENDED
from motif_jax.config.table import table_of
from motif_jax.console import print_line
from motif_jax.devices.checkpoints import Checkpoints, latest_of_all
from motif_jax.devices.hosts import Hosts, Vote
from motif_jax.devices.mesh import DATA, FSDP, batch_parts, host_copy, make_mesh, map_update, place, shard, shardings
from motif_jax.devices.parameters import leaves_by_path, rebuild
from motif_jax.envs.world import SeedStream, World, space_of, waited
from motif_jax.envs.worlds import make_world
from motif_jax.files import to_plain
from motif_jax.learner.options import Control
from motif_jax.learner.samples import calls_of
from motif_jax.learner.settings import LearnerSection, Learning, Settings, find_algorithm
from motif_jax.learner.update import LearnerState, Rollouts, ShapeRewards, TrainingRewards
from motif_jax.networks.actions import CHOICES
from motif_jax.networks.kinds import BY_SPECS, find_prompt_network, is_own, to_record
from motif_jax.policies.model import Model, make_policy_model, read_policy
from motif_jax.policies.player import EpisodePlayer, PolicyPlayer
from motif_jax.rewards.learnt_source import Mix, extrinsic_reward, make_mix
from motif_jax.rewards.online.source import OnlineSource
from motif_jax.rewards.registry import GAME, ONLINE, OptionPlan, behaviours_of, find_plan
from motif_jax.rewards.source import Setting
from motif_jax.rewards.sources import RewardSources, trusted_classes
from motif_jax.stages import make_pool, workers_of
from motif_jax.stages.train_policy import Policy, TrainConfig, check_batch, splits_steps, takes_turns
from motif_jax.structs import UserError, naming

# Puts a batch on the devices: rewards its steps, encodes its texts, groups its episodes, keeps metrics on the host.

NO_EPISODE = -1  # for a column in which no episode ended
AT_LEAST = 64  # steps of a batch without padding, so that few sizes are compiled


class PlacedBatch(NamedTuple):
    """A batch on the device, and figures about it on the host."""

    rollouts: Rollouts
    rewards: dict[str, np.ndarray]  # of each source, by its name, without coefficient. [T, B] each
    ended: np.ndarray  # [T, B] bool
    first: np.ndarray  # whether each rollout begins with an episode. [B]
    played: np.ndarray  # whether the game was played; else it waited, for a decision or other games. [T, B] bool
    turns: np.ndarray | None = None  # `turn_figures` of a policy with options. [K, K + 3]
    paid_messages: np.ndarray | None = None  # of the steps with a positive online reward, if it is audited. [P, 256]


def make_place(parts: TrainerParts) -> Callable[[Arrays], PlacedBatch]:
    """Makes the function that rewards the arrays of rollouts and places them on the devices."""
    model, sources, mesh, plan, grouped = parts.model, parts.sources, parts.mesh, parts.plan, parts.grouped
    cuts = find_algorithm(parts.learner.algorithm).cuts_steps
    alone = jax.process_count() == 1 and batch_parts(mesh) == mesh.shape[DATA]  # hosts need equal shapes
    pack = model.pack if cuts and alone else None

    def place(arrays: Arrays) -> PlacedBatch:
        moments = sources.moments(arrays)
        rewards = sources.shape(moments)
        sources.check(rewards, arrays["reward"].shape)
        played = ~waited(arrays["action"])
        if plan or grouped:
            rewards = {name: np.where(played, array, 0) for name, array in rewards.items()}
        paid = arrays[parts.audited.message][: len(played)][rewards[ONLINE] > 0] if parts.audited else None
        seen = {key: arrays[key] for key in model.reads}
        rows: dict[str, Any] = {key: arrays[key] for key in Rollouts._fields if key in arrays and key not in seen}
        observations = model.encode(seen)
        if pack:
            steps, games = played.shape
            calls = calls_of(steps, games, mesh.shape[DATA], parts.learner, model.chunk)
            observations = pack(observations, calls)
        rows |= {"observations": observations, "reward_inputs": moments}
        if plan:
            rows["control"] = {key: arrays[key] for key in CHOICES}
        if grouped:
            rows = in_groups(rows, arrays[ENDED], seen, grouped)
        return PlacedBatch(
            rollouts=shard(Rollouts(**rows), mesh, axis=1), rewards=rewards, first=arrays["first"][0], played=played,
            ended=arrays["terminated"] | arrays["truncated"], paid_messages=paid,
            turns=turn_figures(plan, arrays, rewards) if plan else None,
        )  # fmt: skip

    return place


def at_position(rollouts: Rollouts, position: float, mesh: Mesh) -> Rollouts:
    """Adds the position in the schedules, in batches of steps that were played."""
    columns = rollouts.first.shape[1] // jax.process_count()
    return rollouts._replace(schedule_position=shard(np.full((1, columns), position, np.float32), mesh, axis=1))


# ---- groups of episodes that began alike, for grpo and gigpo (learner/samples.py)


class Grouped(NamedTuple):
    """The layout of batches in groups of `size` episodes."""

    size: int
    parts: int = 0  # for devices, along the columns, whose played steps come first; 0: all steps stay where they are
    multiple: int = 1  # the number of steps of each part is a multiple of this


def make_grouped(section: Policy, mesh: Mesh) -> Grouped | None:
    """The layout of batches in groups; None for algorithms without groups. Raises UserError if devices cut a group."""
    if not find_algorithm(section.algorithm).in_groups:
        return None
    # Devices along `fsdp` compute the advantages of all their columns, and then divide the steps among them.
    size, places, columns = section.grpo.group_size, mesh.shape[DATA], section.batch_size // section.rollout_length
    if columns % (places * size):
        raise UserError(
            f"{columns} episodes of a batch cannot be divided among {places} devices in groups of {size} "
            "(--config.policy.num_devices, .batch_size, .rollout_length, .grpo.group_size)"
        )
    multiple = math.lcm(section.num_minibatches, mesh.shape[FSDP])
    return Grouped(size, places if splits_steps(section) else 0, multiple)


def in_groups(
    rows: Mapping[str, Any], ended: np.ndarray, seen: Mapping[str, np.ndarray], grouped: Grouped
) -> dict[str, Any]:
    """Sorts the columns of a batch that `EpisodePlayer` played by the seeds of their episodes, and adds `group`.

    `rows`: of `Rollouts`, by name. `ended`: of `acting.first_ends`, [2, B]. `seen`: the observations that are
    compared, [T + 1, B, ...] each.
    """
    size = grouped.size
    numbers, number_of, counts = np.unique(ended[0], return_inverse=True, return_counts=True)
    whole = (numbers != NO_EPISODE) & (counts == size)
    order = np.lexsort((ended[0], ~whole[number_of]))  # a group that lacks an episode must not shift those after it
    grouped_rows, seen, ended = jax.tree.map(lambda array: np.take(array, order, 1), (dict(rows), dict(seen), ended))
    grouped_rows["first"][0] = True  # a game that waited for the others is at the beginning of its episode
    waits = waited(grouped_rows["action"])
    over = np.concatenate([waits[:1], np.logical_or.accumulate(grouped_rows["first"][1:-1] | waits[1:], 0)])
    episodes, steps = ended
    complete = (episodes != NO_EPISODE) & (steps == (~over).sum(0))
    complete &= episodes == np.repeat(episodes[::size], size)
    played = ~over & np.repeat(complete.reshape(-1, size).all(1), size)
    if not played.any():
        raise UserError(
            f"none of {len(episodes) // size} groups is complete: all {size} episodes of a group must begin and end "
            f"within a rollout of {len(waits)} steps (--config.policy.rollout_length, .grpo.group_size)"
        )
    grouped_rows["group"] = {"played": played, "visit": visits(seen, size)}
    if grouped.parts:
        grouped_rows["group"]["index"] = places(played, grouped.parts, grouped.multiple)
    return grouped_rows


def visits(seen: Mapping[str, np.ndarray], size: int) -> np.ndarray:
    """Numbers of the observations of each group, equal for equal ones, below T * G. [T + 1, B, ...] -> [T, B] int32"""
    rows = [np.ascontiguousarray(array[:-1]).view(np.uint8) for array in seen.values()]
    steps, columns = rows[0].shape[:2]
    moment = np.concatenate([row.reshape(steps, columns, -1) for row in rows], 2)
    keys = np.ascontiguousarray(moment).view(np.dtype((np.void, moment.shape[2])))[..., 0]  # [T, B]
    numbers = np.zeros((steps, columns), np.int32)
    for start in range(0, columns, size):
        own = np.s_[:, start : start + size]
        numbers[own] = np.unique(keys[own], return_inverse=True)[1].reshape(steps, size)
    return numbers


def places(played: np.ndarray, parts: int, multiple: int) -> np.ndarray:
    """Indices of the played steps in each part, time first, padded with -1 to one of a few sizes. [1, parts * N]"""
    own = [np.flatnonzero(part) for part in np.split(played, parts, 1)]
    least = max(AT_LEAST, *map(len, own))
    room = 1 << (least - 1).bit_length()
    if least <= 3 * room // 4:
        room = 3 * room // 4
    room = -(-room // multiple) * multiple
    filled = [np.pad(part, (0, room - len(part)), constant_values=-1) for part in own]
    return np.concatenate(filled)[None].astype(np.int32)


# ---- what each option did: its share of the time, the length of its turns, and what they earned


def turn_figures(plan: OptionPlan, arrays: Mapping[str, np.ndarray], rewards: Mapping[str, np.ndarray]) -> np.ndarray:
    """Sums over a batch, a row for each of K options; a mixture counts for each option by its coefficient. [K, K + 3]

    The columns: steps of the games while the option was in charge; turns that it began; what its turns earned in the
    reward of each option and of the controller. `arrays`: `charge`, `option` and `reward`; `rewards`: of each source,
    without coefficient. [T, B] each
    """
    charge, count = arrays["charge"], plan.controller
    names = (GAME, *(choice.name for choice in plan.sources))
    paid = (arrays["reward"] if name == GAME else rewards[name] for name in names)
    by = [np.bincount(charge.ravel(), one.ravel(), minlength=count + 1)[:count] for one in paid]
    steps = np.bincount(charge.ravel(), minlength=count + 1)[:count]
    begun = np.bincount(arrays["option"][charge == plan.controller], minlength=count)
    weights = plan.weights.T
    return np.column_stack([weights @ steps, weights @ begun, weights @ np.stack(by, -1) @ plan.factors.T])


def add_up(figures: list[np.ndarray], names: tuple[str, ...]) -> dict[str, float]:
    """A row of metrics.jsonl: shares, mean lengths and earnings per step, by option."""
    if not figures:
        return {}
    steps, turns, *earned = np.sum(figures, 0).T
    row: dict[str, float] = {}
    for number, name in enumerate(names):
        row[f"option/{name}/share"] = float(steps[number] / (steps.sum() or 1))
        row[f"option/{name}/length"] = float(steps[number] / (turns[number] or 1))
        for what, sums in zip((*names, "controller"), earned, strict=True):
            row[f"option/{name}/earns/{what}"] = float(sums[number] / (steps[number] or 1))
    return row


FAR_AHEAD = 32  # batches; the published system's settings make about 8


@dataclass
class TrainingProgress:
    """What training has done so far, with all runs of it, as checkpoints and the summary hold it."""

    env_steps: int = 0
    updates: int = 0
    seconds: float = 0.0
    next_episode: int = 0
    episodes: int = 0


class TrainerParts(NamedTuple):
    """The parts of policy training, except the learner's state."""

    env: dict[str, Any]  # the config's section
    world: World
    mesh: Mesh
    rollouts: int  # in this host's share of a batch
    spec: dict[str, Any]  # of the network, as checkpoints hold it
    model: Model
    sources: RewardSources
    audited: OnlineSource | None  # the online reward, if its pay is audited
    learner: Settings
    plan: OptionPlan | None  # of a policy with options
    grouped: Grouped | None  # of grpo and gigpo
    make_state: Callable[[Any], Any]  # parameters -> the learner's state before the first update
    update: Any  # compiled: (state, frozen, rollouts) -> (state, metrics)


def assemble(
    config: TrainConfig, workdir: Path, make_sources: Callable[[Setting], RewardSources], hosts: int
) -> TrainerParts:
    """Makes the parts; checks that the batch fits devices and hosts before it loads the reward."""
    section = config.policy
    limit = section.max_episode_steps or config.env["max_episode_steps"]
    env = {**config.env, "max_episode_steps": limit}
    world = make_world(env)
    mesh = make_mesh(section.num_devices, section.fsdp, section.tensor, "--config.policy")
    rollouts, grouped = check_batch(section, batch_parts(mesh), hosts), make_grouped(section, mesh)
    mix, plan = make_mix(section, None), find_plan(config)
    spec, model = make_network(config, world, workdir, plan)
    sources = make_sources(Setting(config, workdir, world.specs, model.reads, mesh))
    online = sources.get(ONLINE)
    audited = online if section.online.audit_every_steps and isinstance(online, OnlineSource) else None
    values = {name: getattr(section, name) for name in table_of(LearnerSection)}
    learner = Settings(**values, total_updates=max(section.train_for_env_steps // section.batch_size, 1))
    if plan and max(plan.lengths) > section.rollout_length:
        print_line(
            f"train_policy: turns of up to {max(plan.lengths)} steps are longer than a rollout; the controller's value "
            "at its end stands for the rest (--config.policy.control.length, .rollout_length)"
        )
    control = Control(model.options, section.control) if model.options else None
    shape_rewards = make_shape_rewards(mix, sources, plan, control, learner.discount)
    learning = Learning(model, mesh, learner, shape_rewards, control)
    make_state, update = find_algorithm(learner.algorithm).make_learner(config, world, learning)
    state = jax.eval_shape(make_state, model.params)
    results = shardings(state, mesh, model.rules), NamedSharding(mesh, P())
    mapped = map_update(update, mesh, batch_axis=1, num_constants=1, results=results)
    return TrainerParts(
        env, world, mesh, rollouts, spec, model, sources, audited, learner, plan, grouped, make_state, mapped
    )


def make_network(
    config: TrainConfig, world: World, workdir: Path, plan: OptionPlan | None
) -> tuple[dict[str, Any], Model]:
    """The network's spec, as checkpoints hold it, and the network with its initial parameters."""
    section = config.policy
    if network := find_prompt_network(section.network):
        return network.start(config, world, workdir)
    space = space_of(world)
    actions = space.outputs if space else len(world.action_names)
    spec: dict[str, Any] = {"network": section.network, "num_actions": actions, "dtype": section.dtype}
    spec |= {name: one.record() for name, one in {"action_space": space, "options": plan}.items() if one}
    if section.network in BY_SPECS or is_own(section.network):
        spec["reads"] = to_record({name: world.specs[name] for name in world.reads})
    return spec, make_policy_model(spec, config.seed)


def make_player(config: TrainConfig, model: Model, seed: int) -> PolicyPlayer:
    """Makes the player that chooses the actions in all games of this host, and of its hosts of games."""
    section = config.policy
    games = workers_of(config.cluster, section.num_workers) * section.games_per_worker
    make = EpisodePlayer if find_algorithm(section.algorithm).in_groups else PolicyPlayer
    return make(model, games, section.games_per_worker // section.groups, seed)


def open_pool(config: TrainConfig, parts: TrainerParts, player: PolicyPlayer, first_episode: int) -> ActorPool:
    """Starts the games of this host; `first_episode` is the number of their first episode."""
    section, algorithm = config.policy, find_algorithm(config.policy.algorithm)
    observations = {*parts.model.reads, *parts.sources.observations}
    groups = workers_of(config.cluster, section.num_workers) * section.groups
    spare = 0 if section.wait_for_learner and not takes_turns(section) else 1  # to fill while the others wait
    slots = -(-parts.rollouts // groups) + spare  # enough for a batch
    ahead = slots * groups / parts.rollouts
    if ahead > FAR_AHEAD:
        print_line(
            f"train_policy: {groups} groups of games can be {ahead:.0f} batches ahead of a slow learner, whose samples "
            "are then as many updates old: use fewer games, a larger batch, or games that wait for the learner "
            "(--config.policy.games_per_worker, .batch_size, .wait_for_learner)"
        )
    if algorithm.on_policy and parts.rollouts % groups:
        print_line(
            f"train_policy: {groups} groups of games play in rounds, of which a batch of {section.batch_size:,} steps "
            "is not a multiple, so it has samples of earlier policies: use a multiple of "
            f"{section.batch_size // parts.rollouts * groups:,} steps (--config.policy.batch_size)"
        )
    pool = make_pool(
        config.cluster, parts.env, tuple(sorted(observations)), num_workers=section.num_workers,
        games_per_worker=section.games_per_worker, rollout_length=section.rollout_length, groups=section.groups,
        outputs=player.outputs, starts=player.starts, warmup_steps=section.warmup_steps, slots_per_group=slots,
        seed=config.seed, stream=SeedStream.TRAIN, first_episode=first_episode,
        alike=section.grpo.group_size if algorithm.in_groups else 1,
        hang_timeout_s=section.hang_timeout_s, flag="--config.policy",
    )  # fmt: skip
    player.timers = pool.timers  # its waiting for the device is a part of the time called `policy`
    return pool


def make_rollout_loop(section: Policy, parts: TrainerParts, pool: ActorPool, player: PolicyPlayer) -> RolloutLoop:
    """Makes the loop that turns the games of `pool` into batches for the learner."""
    inputs = pool, player, parts.rollouts, make_place(parts)
    if isinstance(player, EpisodePlayer):
        return SyncLoop(*inputs, player.begin)
    if not takes_turns(section):
        return AsyncLoop(*inputs)
    alike = not parts.rollouts % (pool.layout.num_workers * pool.layout.groups)  # each group has the same share
    network = find_prompt_network(section.network)
    if network and network.overlaps and section.groups > 1 and alike:
        return OverlappedLoop(*inputs)
    return SyncLoop(*inputs)


def make_shape_rewards(
    mix: Mix, sources: RewardSources, plan: OptionPlan | None = None, control: Control | None = None,
    discount: float = 1.0,
) -> ShapeRewards:  # fmt: skip
    """Makes the function that computes the learner's rewards from rollouts, with all coefficients applied.

    In a policy with options, those of `plan` and `control` replace `mix`.
    """

    def shape_rewards(rollouts: Rollouts) -> TrainingRewards:
        if plan and control:
            shaped = sources.shape(dict[str, Any](rollouts.reward_inputs))
            rewards = jnp.stack([rollouts.reward, *(shaped[choice.name] for choice in plan.sources)])
            total, of_options = control.training_rewards(rewards, jnp.asarray(plan.reward_factors), rollouts, discount)
            return TrainingRewards(total, rollouts.reward, of_options)
        extrinsic = mix.extrinsic * extrinsic_reward(rollouts.reward, mix)
        intrinsic = sources.total(rollouts.reward_inputs)
        intrinsic = jnp.zeros_like(extrinsic) if intrinsic is None else intrinsic
        return TrainingRewards(extrinsic + intrinsic, extrinsic, intrinsic)

    return shape_rewards


# ---- start and checkpoints


class PolicyCheckpoints(Checkpoints):
    """Checkpoints of a policy, each of which can be used without other files."""

    def __init__(self, config: TrainConfig, folder: Path, parts: TrainerParts):
        """`folder`: the stage's, which is locked."""
        section, self._sources = config.policy, parts.sources
        super().__init__(folder / "checkpoints", section.keep_checkpoints, section.milestone_every_steps)
        self.frozen: Any = ()  # parameters that are not trained; every checkpoint has them
        versions = {"motif_jax": motif_jax.__version__, "jax": jax.__version__}
        self._always: dict[str, Any] = {"model": parts.spec, "config": to_plain(config), "versions": versions}

    def save_policy(self, state: LearnerState, done: TrainingProgress) -> None:
        """Starts to write a checkpoint, unless there is one with the same number of steps."""
        if done.env_steps in self.steps():
            return
        others: dict[str, Any] = {"frozen": self.frozen, "sources": self._sources.arrays()}
        arrays = {"learner": state} | {name: one for name, one in others.items() if jax.tree.leaves(one)}
        metadata = self._always | {"sources": self._sources.facts(), "progress": asdict(done)}
        self.save(done.env_steps, arrays, metadata, milestone=done.env_steps == 0)


def start_or_resume(
    config: TrainConfig, checkpoints: PolicyCheckpoints | None, parts: TrainerParts, folder: Path, hosts: Hosts
) -> tuple[LearnerState, Any, TrainingProgress]:
    """The learner's state on all devices, the network's frozen parameters as they were read, and the progress.

    From the first that exists: the run's last checkpoint; another policy; random parameters. All hosts compare theirs.
    """
    state, frozen = parts.make_state(parts.model.params), parts.model.frozen
    done, step = TrainingProgress(), -1
    if saved := latest_of_all(checkpoints, folder, hosts):
        step, arrays, metadata = saved
        parts.sources.restore(metadata["sources"], arrays.pop("sources", {}))
        whole = rebuild({"learner": state, "frozen": frozen}, leaves_by_path(arrays), folder, "--workdir")
        state, frozen, done = whole["learner"], whole["frozen"], TrainingProgress(**metadata["progress"])
    elif config.policy.init_from:
        state, frozen = read_initial(config, parts)
    hosts.agree(Vote.GO_ON)
    hosts.check_same("a state", [step, state, frozen, parts.sources.arrays()])
    if checkpoints:
        checkpoints.frozen = host_copy(frozen)
    return place(state, parts.mesh, parts.model.rules), frozen, done


def read_initial(config: TrainConfig, parts: TrainerParts) -> tuple[LearnerState, Any]:
    """A new state with the parameters of the policy that the config names, and its frozen parameters."""
    source, flag = Path(config.policy.init_from), "--config.policy.init_from"
    with naming(flag):
        other, metadata, _ = read_policy(source, trusted=trusted_classes(config, config.policy.network))
    has, needed = (spec.get("options", {}) for spec in (metadata["model"], parts.spec))
    if has != to_plain(needed):
        words = [f"the options {', '.join(behaviours_of(one))}" if one else "no options" for one in (has, needed)]
        raise UserError(f"the policy in {str(source)!r} has {', not '.join(words)} ({flag}, --config.policy.options)")
    params = rebuild(parts.model.params, leaves_by_path(other.params), source, flag)
    frozen = rebuild(parts.model.frozen, leaves_by_path(other.frozen), source, flag)
    return parts.make_state(params), frozen
