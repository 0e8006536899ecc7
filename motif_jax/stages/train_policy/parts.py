"""What the training loop is made of: parts from the config, checkpoints, batches, metrics."""

from __future__ import annotations

import collections
import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import motif_jax
from motif_jax.actors.acting import Arrays, AsyncLoop, OverlappedLoop, RolloutBatch, RolloutLoop, SyncLoop
from motif_jax.actors.pool import ActorPool
from motif_jax.config.table import table_of
from motif_jax.console import print_line
from motif_jax.devices.checkpoints import Checkpoints, latest_of_all
from motif_jax.devices.hosts import Hosts, Vote
from motif_jax.devices.mesh import (
    DATA,
    batch_parts,
    host_copy,
    host_part,
    make_mesh,
    map_update,
    place,
    shard,
    shardings,
)
from motif_jax.devices.parameters import keys_of, leaves_by_path, rebuild
from motif_jax.envs.world import SeedStream, World, space_of, waited
from motif_jax.envs.worlds import make_world
from motif_jax.files import to_plain, write_whole
from motif_jax.learner.acting import ALONE, Acting, find_acting
from motif_jax.learner.losses import calls_of
from motif_jax.learner.settings import LearnerSection, Learning, Settings, find_algorithm
from motif_jax.learner.update import LearnerState, Rollouts, ShapeRewards, TrainingRewards
from motif_jax.networks.kinds import BY_SPECS, find_prompt_network, is_own, to_record
from motif_jax.policies.model import Model, PolicyPlayer, make_policy_model, read_policy
from motif_jax.rewards.learnt_source import Mix, extrinsic_reward, make_mix
from motif_jax.rewards.registry import LEARNT, return_name
from motif_jax.rewards.source import RewardSources, Setting, trusted_classes
from motif_jax.run import Metrics
from motif_jax.stages import find_pools
from motif_jax.stages.train_policy import (
    RECENT,
    Policy,
    Profile,
    TrainConfig,
    check_batch,
    has_reached,
    takes_turns,
)
from motif_jax.structs import EndStatus, EpisodeInfo, UserError, naming
from motif_jax.system.metrics import Progress, resident_mib

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
    learner: Settings
    playing: Playing
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
    algorithm, rollouts = find_algorithm(section.algorithm), check_batch(config, batch_parts(mesh), hosts)
    playing = algorithm.make_playing(Playing(), config, mesh)
    acting, mix = find_acting(config), make_mix(section, None)
    spec, model = make_network(config, world, workdir, acting)
    sources = make_sources(Setting(config, workdir, world.specs, model.reads, mesh))
    values = {name: getattr(section, name) for name in table_of(LearnerSection)}
    learner = Settings(**values, total_updates=max(section.train_for_env_steps // section.batch_size, 1))
    learning = Learning(model, mesh, learner, make_shape_rewards(mix, sources, model.acting))
    make_state, update = algorithm.make_learner(config, world, learning)
    state = jax.eval_shape(make_state, model.params)
    results = shardings(state, mesh, model.rules), NamedSharding(mesh, P())
    mapped = map_update(update, mesh, batch_axis=1, num_constants=1, results=results)
    return TrainerParts(env, world, mesh, rollouts, spec, model, sources, learner, playing, make_state, mapped)


def make_network(
    config: TrainConfig, world: World, workdir: Path, acting: Acting | None
) -> tuple[dict[str, Any], Model]:
    """The network's spec, as checkpoints hold it, and the network with its initial parameters; `acting`: with it."""
    section = config.policy
    if network := find_prompt_network(section.network):
        return network.start(config, world, workdir)
    space = space_of(world)
    actions = space.outputs if space else len(world.action_names)
    spec: dict[str, Any] = {"network": section.network, "num_actions": actions, "dtype": section.dtype}
    spec |= {"action_space": space.record()} if space else {}
    spec |= acting.record if acting else {}
    if section.network in BY_SPECS or is_own(section.network):
        spec["reads"] = to_record({name: world.specs[name] for name in world.reads})
    model = make_policy_model(spec, config.seed)
    return spec, model._replace(acting=acting or model.acting)


class Playing:
    """How games are played for an algorithm, and what it gets of them: here, each one episode after the other."""

    episodes_per_seed = 1  # consecutive episodes that begin alike

    def player(self, model: Model, games: int, group_size: int, seed: int) -> PolicyPlayer:
        """The player that chooses the actions; see `PolicyPlayer`."""
        return PolicyPlayer(model, games, group_size, seed)

    def loop(self, section: Policy, *inputs: Any) -> RolloutLoop:
        """The loop of pool, player, rollouts per batch, and the function that places a batch."""
        if not takes_turns(section):
            return AsyncLoop(*inputs)
        pool, _, rollouts, _ = inputs
        alike = not rollouts % (pool.layout.num_workers * pool.layout.groups)  # each group has the same share
        network = find_prompt_network(section.network)
        if network and network.overlaps and section.groups > 1 and alike:
            return OverlappedLoop(*inputs)
        return SyncLoop(*inputs)

    def arrange(self, rows: dict[str, Any], seen: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """A batch as the algorithm reads it, by the names of `Rollouts`; `seen`: observations as the games gave them.

        The arrays are [T, T + 1 or 1, B, ...].
        """
        return rows


def make_player(config: TrainConfig, parts: TrainerParts, seed: int) -> PolicyPlayer:
    """Makes the player that chooses the actions in all games of this host, and of its hosts of games."""
    section = config.policy
    games = find_pools(config).workers(section.num_workers) * section.games_per_worker
    return parts.playing.player(parts.model, games, section.games_per_worker // section.groups, seed)


def open_pool(config: TrainConfig, parts: TrainerParts, player: PolicyPlayer, first_episode: int) -> ActorPool:
    """Starts the games of this host; `first_episode` is the number of their first episode."""
    section, algorithm = config.policy, find_algorithm(config.policy.algorithm)
    observations = {*parts.model.reads, *parts.sources.observations}
    pools = find_pools(config)
    groups = pools.workers(section.num_workers) * section.groups
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
    pool = pools.open(
        parts.env, tuple(sorted(observations)), num_workers=section.num_workers,
        games_per_worker=section.games_per_worker, rollout_length=section.rollout_length, groups=section.groups,
        outputs=player.outputs, starts=player.starts, waits=player.waits, warmup_steps=section.warmup_steps,
        slots_per_group=slots, seed=config.seed, stream=SeedStream.TRAIN, first_episode=first_episode,
        episodes_per_seed=parts.playing.episodes_per_seed,
        hang_timeout_s=section.hang_timeout_s, flag="--config.policy",
    )  # fmt: skip
    player.timers = pool.timers  # its waiting for the device is a part of the time called `policy`
    return pool


def make_rollout_loop(
    section: Policy, parts: TrainerParts, pool: ActorPool, player: PolicyPlayer,
    keep: Keep = lambda arrays, rewards: {},
) -> RolloutLoop:  # fmt: skip
    """Makes the loop that turns the games of `pool` into batches for the learner; `keep`: see `make_place`."""
    return parts.playing.loop(section, pool, player, parts.rollouts, make_place(parts, keep))


def make_shape_rewards(mix: Mix, sources: RewardSources, acting: Acting = ALONE) -> ShapeRewards:
    """Makes the function that computes the learner's rewards from rollouts, with all coefficients applied."""

    def of_one_policy(rollouts: Rollouts) -> TrainingRewards:
        extrinsic = mix.extrinsic * extrinsic_reward(rollouts.reward, mix)
        intrinsic = sources.total(rollouts.reward_inputs)
        intrinsic = jnp.zeros_like(extrinsic) if intrinsic is None else intrinsic
        return TrainingRewards(extrinsic + intrinsic, extrinsic, intrinsic)

    return lambda rollouts: acting.rewards(rollouts, of_one_policy, sources)


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
    parts.sources.check_state()
    hosts.agree(Vote.GO_ON)
    hosts.check_same("a state", [step, state, frozen, parts.sources.arrays()])
    if checkpoints:
        checkpoints.frozen = host_copy(frozen)
    return place(state, parts.mesh, parts.model.rules), frozen, done


def read_initial(config: TrainConfig, parts: TrainerParts) -> tuple[LearnerState, Any]:
    """A new state with the parameters of the policy that the config names, and its frozen parameters."""
    source, flag = Path(config.policy.init_from), "--config.policy.init_from"
    with naming(flag):
        other, *_ = read_policy(source, trusted=trusted_classes(config, config.policy.network))
    has, needed = other.acting, parts.model.acting
    if to_plain(has.record) != to_plain(needed.record):
        raise UserError(f"the policy in {str(source)!r} has {has.title}, not {needed.title} ({flag})")
    params = rebuild(parts.model.params, leaves_by_path(other.params), source, flag)
    frozen = rebuild(parts.model.frozen, leaves_by_path(other.frozen), source, flag)
    return parts.make_state(params), frozen


# ---- batches: rewards for their steps, texts encoded, all placed on the devices

Keep = Callable[[Arrays, Mapping[str, np.ndarray]], Mapping[str, Any]]  # of rollouts and their rewards by source


class PlacedBatch(NamedTuple):
    """A batch on the device, and figures about it on the host."""

    rollouts: Rollouts
    rewards: dict[str, np.ndarray]  # of each source, by its name, without coefficient. [T, B] each
    ended: np.ndarray  # [T, B] bool
    first: np.ndarray  # whether each rollout begins with an episode. [B]
    played: np.ndarray  # whether the game was played; else it waited (WAIT). [T, B] bool
    kept: Mapping[str, Any] = MappingProxyType({})  # what hooks of the training keep of the arrays (hooks.py)


def make_place(parts: TrainerParts, keep: Keep = lambda arrays, rewards: {}) -> Callable[[Arrays], PlacedBatch]:
    """Makes the function that rewards the arrays of rollouts and places them on the devices.

    `keep` gives what stays on the host beside that, as `PlacedBatch.kept`.
    """
    model, sources, mesh, playing = parts.model, parts.sources, parts.mesh, parts.playing
    cuts = find_algorithm(parts.learner.algorithm).cuts_steps
    alone = jax.process_count() == 1 and batch_parts(mesh) == mesh.shape[DATA]  # hosts need equal shapes
    pack = model.pack if cuts and alone else None

    def place(arrays: Arrays) -> PlacedBatch:
        moments = sources.moments(arrays)
        rewards = sources.shape(moments)
        sources.check(rewards, arrays["reward"].shape)
        played = ~waited(arrays["action"])
        rewards = {name: np.where(played, array, 0) for name, array in rewards.items()}
        kept = keep(arrays, rewards)
        seen = {key: arrays[key] for key in model.reads}
        rows: dict[str, Any] = {key: arrays[key] for key in Rollouts._fields if key in arrays and key not in seen}
        observations = model.encode(seen)
        if pack:
            steps, games = played.shape
            calls = calls_of(steps, games, mesh.shape[DATA], parts.learner, model.chunk)
            observations = pack(observations, calls)
        rows |= {"observations": observations, "reward_inputs": moments}
        rows["recorded"] = {key: arrays[key] for key in model.acting.recorded}
        rollouts = shard(Rollouts(**playing.arrange(rows, seen)), mesh, axis=1)
        return PlacedBatch(
            rollouts=rollouts, rewards=rewards, first=arrays["first"][0], played=played,
            ended=arrays["terminated"] | arrays["truncated"], kept=kept,
        )  # fmt: skip

    return place


def at_position(rollouts: Rollouts, position: float, mesh: Mesh) -> Rollouts:
    """Adds the position in the schedules, in batches of steps that were played; the highest of all hosts counts."""
    columns = rollouts.first.shape[1] // jax.process_count()
    return rollouts._replace(schedule_position=shard(np.full((1, columns), position, np.float32), mesh, axis=1))


# ---- metrics

FEW_CALLS = 2  # of the policy, whose time is measured
LEARNING = 3  # times the time of a call: forward and backward
EXTREMES = {"min": min, "max": max}
Group = tuple[int, int]  # of games: a worker's number, and the group's in it
Ended = tuple[EpisodeInfo, dict[str, float]]  # an episode, and its return by reward source


def columns_of(batch: RolloutBatch) -> Iterator[tuple[Group, slice]]:
    """The group of each rollout of a batch, and the columns of its games."""
    size = len(batch.arrays.first) // len(batch.fulls)
    for number, full in enumerate(batch.fulls):
        yield (full.worker, full.group), slice(number * size, (number + 1) * size)


class Returns:
    """Returns of whole episodes by reward source, summed over their rollouts."""

    def __init__(self) -> None:
        # rewards by source and steps, summed over each game's open episode. [sources + 1, E]
        self._open: dict[Group, np.ndarray] = {}

    def take(self, batch: RolloutBatch) -> list[Ended]:
        """The episodes that ended in a batch, except those that began with random actions (`warmup_steps`)."""
        placed: PlacedBatch = batch.arrays
        ended_episodes = []
        for (group, columns), episodes in zip(columns_of(batch), batch.episodes, strict=True):
            arrays = [*placed.rewards.values(), placed.played]
            counted = np.stack([array[:, columns] for array in arrays], 1)  # [T, sources + 1, E]
            sums = np.cumsum(counted, 0, dtype=np.float64)
            carried = np.where(placed.first[columns], 0.0, self._open.get(group, np.zeros_like(sums[0])))
            for ended in episodes:
                *values, seen = carried[:, ended.game] + sums[ended.step, :, ended.game]
                if seen >= ended.info.steps:
                    ended_episodes.append((ended.info, dict(zip(placed.rewards, map(float, values), strict=True))))
                carried[:, ended.game] = -sums[ended.step, :, ended.game]
            self._open[group] = carried + sums[-1]
        return ended_episodes


class MetricsCollector:
    """Collects figures of training; on the first host, also shows the progress and writes rows of `metrics.jsonl`."""

    def __init__(
        self, section: Policy, folder: Path, done: TrainingProgress, parts: TrainerParts, pool: ActorPool,
        rollout_loop: RolloutLoop, metrics: Metrics | None, more: Callable[[], dict[str, float]],
    ):  # fmt: skip
        """Goes on after `done`. `metrics`: None on other hosts than the first. `more`: figures for a row of them."""
        self._section, self._sources, self._metrics, self._more = section, parts.sources, metrics, more
        self.figures = tuple(pool.world.figures)  # names of the world's figures
        self.recent: collections.deque[Ended] = collections.deque(maxlen=RECENT)
        self.episodes = 0
        self.pool, self.rollout_loop, self._returns = pool, rollout_loop, Returns()
        self._timers_before: dict[str, float] = {}
        self._written, self._steps = time.monotonic(), done.env_steps
        self._seen, self._told = (0, 0.0), False
        total = None if section.train_for_seconds else section.train_for_env_steps
        self._bar: Any = metrics and Progress("train_policy", total, "steps", done.env_steps)
        # an update that the device may not have finished: its number, the steps after it, its batch and metrics
        self._pending: tuple[int, int, RolloutBatch, dict[str, jax.Array]] | None = None
        self._folder = folder
        self.clear()

    def clear(self) -> None:
        self._ended: list[Ended] = []
        self._updates: list[dict[str, float]] = []  # metrics
        self._depths: list[int] = []
        self._rewards: dict[str, list[tuple[float, float]]] = {}  # of each batch: mean, share that is not 0

    def close(self) -> None:
        if self._bar:
            self._bar.close()

    def batch(self, batch: RolloutBatch) -> None:
        ended, placed = self._returns.take(batch), batch.arrays
        self._ended += ended
        self.recent.extend(ended)
        self.episodes += len(ended)
        self._depths.append(self.rollout_loop.depth)
        for name, array in placed.rewards.items():
            own = array if placed.played.all() else array[placed.played]  # games may wait for others
            if own.size:
                self._rewards.setdefault(name, []).append((float(own.mean()), float((own != 0).mean())))

    def row(self, done: TrainingProgress) -> dict[str, Any]:
        now = time.monotonic()
        seconds = max(now - self._written, 1e-9)
        row: dict[str, Any] = {
            "seconds": round(done.seconds, 2),
            "updates": done.updates,
            "steps_per_s": round((done.env_steps - self._steps) / seconds, 1),
            "episode/all": done.episodes,
        }
        row |= self._sources.figures() | self._more()
        for name in self._updates[-1] if self._updates else ():
            values = [metrics[name] for metrics in self._updates]
            row[f"train/{name}"] = EXTREMES.get(name.rpartition("_")[2], np.mean)(values)
        row |= {f"episode/{name}": value for name, value in summarise_recent(self._ended, self.figures).items()}
        for name, figures in self._rewards.items():
            row[f"reward/{name}_mean"], row[f"reward/{name}_share"] = np.mean(figures, 0).tolist()
        # each activity's share of the time; for the workers, the average
        spent = self.pool.timers.seconds | self.rollout_loop.timers.seconds
        spent["workers_wait"] = self.pool.worker_wait_s / self.pool.layout.num_workers
        for name, total in spent.items():
            row[f"time/{name}"] = round((total - self._timers_before.get(name, 0.0)) / seconds, 4)
        row["queue/batches_waiting"] = np.mean(self._depths) if self._depths else None
        row["workers/restarts"], row["workers/dropped_steps"] = self.pool.restarts, self.pool.dropped_steps
        row["memory_mib"] = round(resident_mib())
        self._timers_before, self._written, self._steps = dict(spent), now, done.env_steps
        self.clear()
        return row

    def playing(self, done: TrainingProgress, hosts: int, calls: int) -> None:
        """Shows the steps of the first batch; prints once an estimate of the time that training takes.

        `calls`: of the policy so far. The first ones seen are not timed, as they compile.
        """
        pool, section = self.pool, self._section
        groups = pool.layout.groups if isinstance(self.rollout_loop, OverlappedLoop) else 1
        games, seconds = hosts * pool.num_games // groups, pool.timers.seconds.get("policy", 0.0)
        self._bar.update(done.env_steps + min(calls * games, section.batch_size))
        if not self._seen[0]:
            self._seen = calls, seconds
        before, spent = self._seen
        if calls < before + FEW_CALLS or self._told:
            return
        self._told = True
        step = (seconds - spent) / (calls - before) / games
        print_line(f"train_policy: {estimate(section, step, section.train_for_env_steps - done.env_steps)}")

    def reached(self) -> bool:
        """Whether the last episodes have the figure that ends training."""
        until = self._section.train_until
        return bool(until) and has_reached(self._section, summarise_recent(list(self.recent), self.figures))

    def read_metrics(self) -> str:
        """Reads the last update's metrics from the device; returns an error message if the loss is not finite."""
        if not self._pending:
            return ""
        update, env_steps, batch, on_device = self._pending
        self._pending = None
        with self.rollout_loop.timers("update"):
            metrics = {name: float(value) for name, value in jax.device_get(on_device).items()}
        self._updates.append(metrics)
        if metrics["finite"]:
            return ""
        of_host = f"-host{jax.process_index()}" if jax.process_count() > 1 else ""
        file = self._folder / f"broken-batch-{update}{of_host}.npz"
        leaves = jax.tree_util.tree_flatten_with_path(batch.arrays.rollouts)[0]
        arrays: dict[str, Any] = {".".join(keys_of(path)): host_part(leaf) for path, leaf in leaves}
        write_whole(file, lambda out: np.savez(out, **arrays))
        return (
            f"the loss is not finite at update {update} ({env_steps:,} steps); the batch, in {str(file)!r}, has not "
            "changed the policy, which the checkpoint holds: start another --workdir from it, with "
            f"--config.policy.init_from={str(self._folder.parent)!r} and a smaller --config.policy.learning_rate"
        )

    def after_update(self, done: TrainingProgress, batch: RolloutBatch, metrics: dict[str, jax.Array]) -> None:
        """Updates the progress line, and writes a row if `log_every_s` have passed.

        The row is of the updates before: their `metrics` are read one update late, so as not to wait for the device.
        """
        self._pending = done.updates, done.env_steps, batch, metrics
        if self._metrics is None:
            self.clear()  # rows are the first host's
            return
        if time.monotonic() - self._written > self._section.log_every_s and self._updates:
            self._metrics.write(done.env_steps, self.row(done))
        notes = {}
        if self.recent:
            recent = summarise_recent(list(self.recent), self.figures)
            notes = {"return": f"{recent['return']:.2f}"}
            notes |= {"depth": f"{recent['max_depth']:.1f}"} if "max_depth" in recent else {}
            notes |= {one.name: f"{recent[return_name(one.name)]:.2f}" for one in self._sources}
        steps, seconds = self._section.train_for_env_steps, self._section.train_for_seconds
        if seconds and done.seconds >= 1:  # time ends the run: estimate its steps
            self._bar.expect(min(steps, round(done.env_steps * seconds / done.seconds)), seconds - done.seconds)
        self._bar.update(done.env_steps, **notes)

    def last(self, done: TrainingProgress) -> None:
        if self._metrics and self._updates and done.env_steps > self._steps:
            self._metrics.write(done.env_steps, self.row(done))


def estimate(section: Policy, step: float, left: int) -> str:
    """The time that training takes, in words. `step`: seconds in which an action is chosen; `left`: steps."""
    learning = LEARNING * section.num_epochs * step
    batch, limit, rest = section.batch_size, section.train_for_seconds, left * (step + learning)
    flags = "--config.policy.train_for_env_steps, .batch_size, .num_epochs"
    whole = f", and {rest:,.0f} s for all {left:,} ({flags})"
    if limit and rest > limit:
        whole = f"; training ends after {limit:,.0f} s, before all {left:,} ({flags}, .train_for_seconds)"
    return (
        f"choosing an action takes {step:.2g} s, and learning from it about {learning:.2g} s: about "
        f"{batch * (step + learning):,.0f} s for a batch of {batch:,} steps{whole}"
    )


def summarise_recent(ended: list[Ended], figures: Sequence[str]) -> dict[str, Any]:
    """Means over episodes by name, including the world's figures; None without episodes."""
    infos = [info for info, _ in ended]
    values: dict[str, list[Any]] = {"return": [info.episode_return for info in infos]}
    for name in {LEARNT: None} | {name: None for _, returns in ended for name in returns}:  # in their order
        values[return_name(name)] = [returns.get(name, 0.0) for _, returns in ended]
    named = [info.named(figures) for info in infos]
    values |= {name: [one[name] for one in named] for name in ("steps", *figures, "success")}
    for status in (EndStatus.DEATH, EndStatus.ENDED, EndStatus.ABORTED):
        values[f"share_{status.name.lower()}"] = [info.end_status == status for info in infos]
    return {"count": len(infos)} | {name: float(np.mean(own)) if own else None for name, own in values.items()}


class Trace:
    """Traces some updates for XProf, TensorBoard or Perfetto."""

    def __init__(self, section: Profile, folder: Path):
        self._first, self._end, self._folder = section.start_step, section.start_step + section.num_steps, folder
        self._seen, self._open = 0, False

    @contextlib.contextmanager
    def step(self, number: int) -> Iterator[None]:
        if self._first == self._seen < self._end:
            jax.profiler.start_trace(str(self._folder), create_perfetto_trace=True)
            self._open = True
        self._seen += 1
        with jax.profiler.StepTraceAnnotation("update", step_num=number):
            yield
        if self._seen == self._end:
            self.close()

    def close(self) -> None:
        if self._open:
            jax.effects_barrier()
            jax.profiler.stop_trace()
            self._open = False
            print_line(f"train_policy: a trace of the device's work is in {self._folder}")
