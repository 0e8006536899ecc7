"""Trains the policy: the loop, as in examples/motif_loop.py, with checkpoints, metrics, hooks and several hosts.

Three things run at the same time: workers play, a thread computes their actions with the newest policy, and the main
thread learns. The learner makes `num_epochs` passes over each batch of rollouts, then the new policy plays. With
several hosts, each plays its own games, and the first one writes the files.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import jax

from motif_jax.actors.acting import RolloutBatch
from motif_jax.config.table import table_of
from motif_jax.console import print_line
from motif_jax.devices.hosts import Ballot, Hosts, Vote, start_hosts
from motif_jax.devices.mesh import batch_parts, describe_memory, local_copy, make_mesh, needed_bytes
from motif_jax.envs.world import World
from motif_jax.envs.worlds import make_world
from motif_jax.learner.acting import find_acting
from motif_jax.learner.settings import LearnerSection, Settings, find_algorithm
from motif_jax.networks.kinds import find_prompt_network
from motif_jax.policies.checkpoints import PolicyCheckpoints, TrainingProgress, start_or_resume
from motif_jax.policies.learning import Learner, at_position, make_learner
from motif_jax.policies.model import PolicyPlayer, start_policy_model
from motif_jax.rewards.learnt_source import make_mix
from motif_jax.rewards.returns import summarise_recent
from motif_jax.rewards.source import RewardSources, Setting, make_sources
from motif_jax.run import Run, StageRun
from motif_jax.stages.train_policy import STAGE, Policy, TrainConfig, check_batch, finished, takes_turns
from motif_jax.stages.train_policy.hooks import Hooks, Watched
from motif_jax.stages.train_policy.metrics import MetricsCollector, Trace
from motif_jax.stages.train_policy.page import report_training
from motif_jax.stages.train_policy.playing import Games, Playing
from motif_jax.structs import Stopped, UserError
from motif_jax.system.errors import in_words
from motif_jax.system.machine import describe
from motif_jax.system.meeting import find_meeting
from motif_jax.system.startup import StopAsked

REPORT_EVERY_S = 600.0  # it reads all metrics
PATIENCE_S = 0.5  # how often a learner without batches checks for signals


class Parts(NamedTuple):
    """What a training is made of."""

    world: World
    spec: dict[str, Any]  # of the network, as checkpoints hold it
    learner: Learner
    games: Games


def assemble(config: TrainConfig, workdir: Path, make_sources: Callable[[Setting], RewardSources], hosts: int) -> Parts:
    """Makes world, network, sources, learner and games; checks first that devices and hosts can share a batch."""
    section = config.policy
    limit = section.max_episode_steps or config.env["max_episode_steps"]
    env = {**config.env, "max_episode_steps": limit}
    world = make_world(env)
    mesh = make_mesh(section.num_devices, section.fsdp, section.tensor, "--config.policy")
    rollouts = check_batch(config, batch_parts(mesh), hosts)
    playing = find_algorithm(section.algorithm).make_playing(Playing(), config, mesh)
    acting, mix = find_acting(config), make_mix(section, None)
    spec, model = start_policy_model(config, world, workdir, acting)
    sources = make_sources(Setting(config, workdir, world.specs, model.reads, mesh))
    values = {name: getattr(section, name) for name in table_of(LearnerSection)}
    settings = Settings(**values, total_updates=max(section.train_for_env_steps // section.batch_size, 1))
    learner = make_learner(model, sources, mesh, settings, mix, config, world)
    return Parts(world, spec, learner, Games(config, env, playing, rollouts))


def train(config: TrainConfig, workdir: Path) -> None:
    """Trains the policy in `workdir/policy`, or resumes an earlier run."""
    with StopAsked() as stop:  # throughout: a signal saves the state, and all hosts end together
        start_hosts(find_meeting(config.distributed), lambda: stop.asked)
        with Hosts() as hosts, contextlib.ExitStack() as stack:  # the last checkpoint is whole before hosts part
            learn(config, workdir, hosts, stop, stack)


def learn(config: TrainConfig, workdir: Path, hosts: Hosts, stop: StopAsked, at_the_end: contextlib.ExitStack) -> None:
    """Trains on this host; every host of a run calls it."""
    section, folder = config.policy, workdir / "policy"
    world, spec, learner, games = assemble(config, workdir, make_sources, hosts.count)
    model, sources = learner.model, learner.sources
    at_the_end.callback(sources.close)

    # ---- start or resume
    stage = at_the_end.enter_context(Run(workdir).stage("train_policy", "policy", writes=hosts.me == 0))
    checkpoints = PolicyCheckpoints(config, folder, spec, sources, stage.writes)
    at_the_end.callback(checkpoints.close)
    state, frozen, done = start_or_resume(config, checkpoints, learner, hosts)
    if stage.writes:
        stop.watch(checkpoints.folder, lambda: done.env_steps, "steps")
        if done.env_steps:
            print_line(f"train_policy: going on after {done.env_steps:,} steps")
    stage.bind(config)

    # ---- games
    on_devices = learner.place(frozen)
    model = model._replace(frozen=on_devices if learner.mesh.size == 1 else jax.device_put(frozen))
    player = games.player(model, seed=config.seed + done.updates * hosts.count + hosts.me)
    params = local_copy(state.params)
    player.swap(player.prepare(params, done.updates), wait=True)
    before, timed_from, start, broken = replace(done), done.env_steps, time.monotonic(), ""
    with contextlib.ExitStack() as stack:
        hooks = Hooks(Watched(config, world, sources, model, params, done, folder), stage.writes)
        pool = stack.enter_context(games.open(player, sources.observations, hosts.first_episode + done.next_episode))
        rollout_loop = stack.enter_context(contextlib.closing(games.loop(pool, player, learner, hooks.keep)))
        trace = stack.enter_context(contextlib.closing(Trace(config.profile, folder / "profile")))
        rows = stage.metrics("env_steps", done.env_steps, section.tensorboard, section.wandb, config, "policy")
        row_file = stack.enter_context(rows)
        collector = MetricsCollector(section, folder, done, sources, pool, rollout_loop, row_file, hooks.figures)
        stack.callback(collector.close)
        batches = Batches(section, hosts, stop, player, collector, done)
        stack.enter_context(saved_on_error(lambda: (state, done), checkpoints))

        # ---- learn
        reported = time.monotonic()
        for batch in batches:
            rollouts = scheduled(batch.arrays.rollouts, section, learner, done, waits=player.waits)
            if first := done.updates == before.updates:
                before_first_update(section, learner.update, (state, on_devices, rollouts), checkpoints, done)
                hosts.agree()  # if it raised on another host, that one does not take part in the update
            with trace.step(done.updates):
                state, measured = learner.update(state, on_devices, rollouts)
            done.updates += 1

            # publish the new policy; games wait for it only if they take turns with the learner
            params = local_copy(state.params)
            with rollout_loop.timers("update"):
                player.swap(player.prepare(params, done.updates), wait=takes_turns(section))

            # count; timing starts after the first update, which includes compilation
            done.env_steps += batch.steps
            if first:
                start, timed_from = time.monotonic(), done.env_steps
            if stage.writes:  # the seconds of the first host decide
                done.seconds = before.seconds + time.monotonic() - start
            done.next_episode = batches.said.next_episode
            done.episodes += collector.batch(batch)

            # the reward sources learn; the metrics are read one update late, so as not to wait for the device
            sources.advance(batch, hosts)
            hooks.after_update(done, params, batch)
            if broken := collector.after_update(done, batch, measured):
                break
            if checkpoints.is_due(done, hosts):
                checkpoints.save(state, done)
                if time.monotonic() - reported > REPORT_EVERY_S:
                    report_training(workdir)
                    reported = time.monotonic()
        broken = collector.last(done) or broken

    # ---- results
    checkpoints.save(state, done)
    checkpoints.close()
    if broken:
        raise UserError(broken)
    failures = sources.failures()
    if stage.writes:
        timed = done.env_steps - timed_from, done.seconds - before.seconds
        write_summary(stage, done, timed, collector, failures)
    if batches.said.vote == Vote.STOP:
        raise Stopped(
            f"stopped by {stop.asked or 'a signal to another host'} after {done.env_steps:,} steps, which are "
            "saved; run the same command again to resume"
        )
    if failures:
        raise UserError(f"{failures[0]}; the policy is saved, and the same command goes on with the stages after it")


class Batches:
    """The batches of a training, for all hosts in step, until training is complete or a host is told to stop."""

    def __init__(
        self, section: Policy, hosts: Hosts, stop: StopAsked, player: PolicyPlayer, collector: MetricsCollector,
        done: TrainingProgress,
    ):  # fmt: skip
        self._section, self._hosts, self._stop, self._player = section, hosts, stop, player
        self._collector, self._done, self._episodes = collector, done, done.episodes
        self.said = Ballot()  # the last one, of all hosts

    def __iter__(self) -> Iterator[RolloutBatch]:
        """Each batch counts the steps of all hosts, and has their episodes before it counted in the progress."""
        collector, done, hosts = self._collector, self._done, self._hosts
        while True:
            batch = collector.rollout_loop.get(PATIENCE_S)
            if batch is None and not self._stop.asked:
                collector.playing(done, hosts.count, self._player.calls)
                continue
            over = finished(self._section, done.env_steps, done.seconds) or collector.reached()
            vote = Vote.STOP if self._stop.asked else Vote.END if over else Vote.GO_ON
            episode = collector.pool.next_episode - hosts.first_episode
            self.said = hosts.agree(Ballot(vote, episode, collector.episodes, batch.steps if batch else 0))
            done.episodes = self._episodes + self.said.episodes
            if self.said.vote != Vote.GO_ON or batch is None:
                return
            yield batch._replace(steps=self.said.steps)


def scheduled(rollouts: Any, section: Policy, learner: Learner, done: TrainingProgress, waits: bool) -> Any:
    """Rollouts with their position in the schedules, where the number of updates is not it.

    `waits`: games wait, so that a batch has fewer than `batch_size` steps.
    """
    anneals = (section.anneal_learning_rate_to, section.anneal_exploration_to) != (1.0, 1.0)
    by_seconds = section.train_for_seconds and not section.synchronous and anneals
    if not (waits or by_seconds):
        return rollouts
    share = done.seconds / section.train_for_seconds if by_seconds else 0.0
    position = max(done.env_steps / section.batch_size, share * learner.settings.total_updates)
    return at_position(rollouts, position, learner.mesh)


def before_first_update(
    section: Policy, update: Any, arguments: Any, checkpoints: PolicyCheckpoints, done: TrainingProgress
) -> None:
    """Saves a policy that begins trained; raises UserError on one of several hosts if the update does not fit there.

    Otherwise the other hosts would wait in the update for the one whose memory is full. `arguments`: the state first.
    """
    if jax.process_index() == 0:
        print_line("train_policy: compiling the first update")
    network = find_prompt_network(section.network)
    if network and network.keeps_untrained and not done.env_steps:
        checkpoints.save(arguments[0], done)
    memory = describe_memory(jax.local_devices()[0]) if jax.process_count() > 1 else None
    if memory and (needed := needed_bytes(update.lower(*arguments).compile())) > memory.free:
        what = f"an update needs {in_words(needed)} of a device, of which {in_words(memory.free)} are free"
        raise UserError(f"train_policy cannot go on: {what} ({STAGE.limits.device_memory})")


def write_summary(
    stage: StageRun, done: TrainingProgress, timed: tuple[int, float], collector: MetricsCollector,
    failures: Sequence[str],
) -> None:  # fmt: skip
    """Writes and prints the summary, and the report's part before it; `timed`: steps and their seconds."""
    steps, seconds = timed
    rate = round(steps / max(seconds, 1e-9), 1) if steps else None  # a single update is not timed
    summary = asdict(done) | {
        "checkpoint": done.env_steps,
        "steps_per_s": rate,
        "recent_episodes": summarise_recent(list(collector.recent), collector.figures),
        "worker_restarts": collector.pool.restarts,
        "machine": describe(jax.devices()[0].device_kind, jax.device_count()),
    }
    report_training(stage.workdir, summary)
    stage.write("summary", summary)
    print_line(
        f"train_policy: {done.env_steps:,} steps, {done.updates:,} updates, {done.episodes:,} episodes; "
        + (f"{rate:,.0f} steps/s; " if rate else "")
        + f"checkpoints in {stage.path / 'checkpoints'}"
    )
    for failure in failures:
        print_line(f"train_policy: {failure}")


@contextlib.contextmanager
def saved_on_error(now: Callable[[], tuple[Any, TrainingProgress]], checkpoints: PolicyCheckpoints) -> Iterator[None]:
    """Saves state and progress before an error within passes on, such as a worker's; but not before the first update.

    The state of an update that failed is lost, as its memory was given to the update.
    """
    try:
        yield
    except Exception:
        state, done = now()
        if done.updates and not any(leaf.is_deleted() for leaf in jax.tree.leaves(state)):
            checkpoints.save(state, done)
        raise
