"""Trains the policy: the loop. parts.py has what it is made of.

Three things run at the same time: workers play, a thread computes their actions with the newest policy, and the main
thread learns. The learner makes `num_epochs` passes over each batch of rollouts, then the new policy plays. With
several hosts, each plays its own games, and the first one writes the files.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import jax

from motif_jax.console import print_line
from motif_jax.devices.hosts import Hosts, Vote, start_hosts
from motif_jax.devices.mesh import describe_memory, local_copy, needed_bytes, place
from motif_jax.networks.kinds import find_prompt_network
from motif_jax.rewards.source import make_sources
from motif_jax.run import Run, StageRun
from motif_jax.stages.train_policy import STAGE, Policy, TrainConfig, finished, takes_turns
from motif_jax.stages.train_policy.hooks import Hooks, Watched
from motif_jax.stages.train_policy.page import report_training
from motif_jax.stages.train_policy.parts import (
    MetricsCollector,
    PolicyCheckpoints,
    Trace,
    TrainingProgress,
    assemble,
    at_position,
    make_player,
    make_rollout_loop,
    open_pool,
    start_or_resume,
    summarise_recent,
)
from motif_jax.structs import Stopped, UserError
from motif_jax.system.errors import in_words
from motif_jax.system.machine import describe
from motif_jax.system.meeting import find_meeting
from motif_jax.system.startup import StopAsked

EPISODES_PER_HOST = 2**40  # so that hosts play different games
REPORT_EVERY_S = 600.0  # it reads all metrics
PATIENCE_S = 0.5  # how often a learner without batches checks for signals


def train(config: TrainConfig, workdir: Path) -> None:
    """Trains the policy in `workdir/policy`, or resumes an earlier run."""
    with StopAsked() as stop:  # throughout: a signal saves the state, and all hosts end together
        start_hosts(find_meeting(config.distributed), lambda: stop.asked)
        with Hosts() as hosts, contextlib.ExitStack() as stack:  # the last checkpoint is whole before hosts part
            learn(config, workdir, hosts, stop, stack)


def learn(config: TrainConfig, workdir: Path, hosts: Hosts, stop: StopAsked, at_the_end: contextlib.ExitStack) -> None:
    """Trains on this host; every host of a run calls it."""
    section, folder = config.policy, workdir / "policy"
    host, num_hosts = hosts.me, hosts.count
    parts = assemble(config, workdir, make_sources, num_hosts)
    at_the_end.callback(parts.sources.close)

    # ---- start or resume
    stage = at_the_end.enter_context(Run(workdir).stage("train_policy", "policy", writes=host == 0))
    checkpoints = PolicyCheckpoints(config, folder, parts) if host == 0 else None
    saving = at_the_end.enter_context(contextlib.ExitStack())
    if checkpoints:
        saving.callback(checkpoints.close)
    state, frozen, done = start_or_resume(config, checkpoints, parts, folder / "checkpoints", hosts)
    if checkpoints:
        stop.watch(checkpoints.directory, lambda: done.env_steps, "steps")
    placed_frozen = place(frozen, parts.mesh, parts.model.rules)
    if host == 0 and done.env_steps:
        print_line(f"train_policy: going on after {done.env_steps:,} steps")
    stage.bind(config)

    # ---- games
    model = parts.model._replace(frozen=placed_frozen if parts.mesh.size == 1 else jax.device_put(frozen))
    player = make_player(config, parts._replace(model=model), seed=config.seed + done.updates * num_hosts + host)
    params = local_copy(state.params)
    player.swap(player.prepare(params, done.updates), wait=True)
    anneals = (section.anneal_learning_rate_to, section.anneal_exploration_to) != (1.0, 1.0)
    with contextlib.ExitStack() as stack:
        hooks = Hooks(Watched(config, parts, model, params, done, folder), writes=host == 0)
        pool = stack.enter_context(open_pool(config, parts, player, host * EPISODES_PER_HOST + done.next_episode))
        rollout_loop = make_rollout_loop(section, parts, pool, player, hooks.keep)
        stack.callback(rollout_loop.close)
        trace = stack.enter_context(contextlib.closing(Trace(config.profile, folder / "profile")))
        row_file = stack.enter_context(
            stage.metrics("env_steps", done.env_steps, section.tensorboard, section.wandb, config, "policy")
        )
        collector = MetricsCollector(section, folder, done, parts, pool, rollout_loop, row_file, hooks.figures)
        stack.callback(collector.close)

        # ---- learn
        before, timed_from, broken = replace(done), done.env_steps, ""
        start = saved = reported = time.monotonic()
        saved_steps, save_every_s = done.env_steps, hosts.save_every_s(section.save_every_s)
        while not broken:
            # wait for a batch; all hosts agree whether to go on
            with saved_on_error(checkpoints, state, done):  # a worker's error, for example
                batch = rollout_loop.get(PATIENCE_S)
            if batch is None and not stop.asked:
                if row_file and takes_turns(section) and done.updates == before.updates:
                    collector.playing(done, num_hosts, player.calls)
                continue
            seconds = done.seconds if host == 0 else 0.0  # the summary has those of the first host
            over = finished(section, done.env_steps, seconds) or (host == 0 and collector.reached())
            vote = Vote.END if over else Vote.GO_ON
            own_games = pool.next_episode - host * EPISODES_PER_HOST
            own = own_games, collector.episodes, batch.steps if batch else 0
            vote, others = hosts.agree(Vote.STOP if stop.asked else vote, own)
            done.episodes = before.episodes + collector.episodes + int(others[:, 1].sum())
            if vote != Vote.GO_ON or batch is None:
                break

            # update
            first, rollouts = done.updates == before.updates, batch.arrays.rollouts
            by_seconds = section.train_for_seconds and not section.synchronous and anneals
            if player.waits or by_seconds:  # games wait: a batch has fewer than batch_size steps
                share = seconds / section.train_for_seconds if by_seconds else 0.0
                position = max(done.env_steps / section.batch_size, share * parts.learner.total_updates)
                rollouts = at_position(rollouts, position, parts.mesh)
            if first:
                before_first_update(section, parts.update, (state, placed_frozen, rollouts), checkpoints, done)
                hosts.agree(Vote.GO_ON)  # if it raised on another host, that one does not take part in the update
            with trace.step(done.updates):
                state, metrics = parts.update(state, placed_frozen, rollouts)
            done.updates += 1

            # publish the new policy; games wait for it only if they take turns with the learner
            params = local_copy(state.params)
            with rollout_loop.timers("update"):
                player.swap(player.prepare(params, done.updates), wait=takes_turns(section))

            # count
            batch = batch._replace(steps=batch.steps + int(others[:, 2].sum()))  # those of all hosts
            done.env_steps += batch.steps
            if first:  # timing starts after the first update, which includes compilation
                start, timed_from = time.monotonic(), done.env_steps
            done.seconds = before.seconds + time.monotonic() - start
            done.next_episode = int(max([pool.next_episode - host * EPISODES_PER_HOST, *others[:, 0]]))
            collector.batch(batch)
            done.episodes = before.episodes + collector.episodes + int(others[:, 1].sum())

            # the reward sources learn
            with saved_on_error(checkpoints, state, done):
                parts.sources.advance(batch, hosts)
                hooks.after_update(done, params, batch)

            # log one update late, so as not to wait for the device; save
            broken = collector.read_metrics()
            with saved_on_error(checkpoints, state, done):
                collector.after_update(done, batch, metrics)
            now = time.monotonic()
            due = done.env_steps - saved_steps >= section.save_every_steps or now - saved >= save_every_s
            if checkpoints and due and not broken:
                checkpoints.save_policy(state, done)
                saved, saved_steps = time.monotonic(), done.env_steps
                if saved - reported > REPORT_EVERY_S:
                    report_training(workdir)
                    reported = time.monotonic()
        broken = broken or collector.read_metrics()
        collector.last(done)

    # ---- results
    if checkpoints:
        checkpoints.save_policy(state, done)
        saving.close()
    if broken:
        raise UserError(broken)
    failures = parts.sources.failures()
    if checkpoints:
        timed = done.env_steps - timed_from, done.seconds - before.seconds
        write_summary(stage, done, timed, collector, failures)
    if vote == Vote.STOP:
        raise Stopped(
            f"stopped by {stop.asked or 'a signal to another host'} after {done.env_steps:,} steps, which are "
            "saved; run the same command again to resume"
        )
    if failures:
        raise UserError(f"{failures[0]}; the policy is saved, and the same command goes on with the stages after it")


def before_first_update(
    section: Policy, update: Any, arguments: Any, checkpoints: PolicyCheckpoints | None, done: TrainingProgress
) -> None:
    """Saves a policy that begins trained; raises UserError on one of several hosts if the update does not fit there.

    Otherwise the other hosts would wait in the update for the one whose memory is full. `arguments`: the state first.
    """
    if jax.process_index() == 0:
        print_line("train_policy: compiling the first update")
    network = find_prompt_network(section.network)
    if checkpoints and network and network.keeps_untrained and not done.env_steps:
        checkpoints.save_policy(arguments[0], done)
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
def saved_on_error(checkpoints: PolicyCheckpoints | None, state: Any, done: TrainingProgress) -> Iterator[None]:
    """Saves the state, which is still valid, before an error within passes on; but not before the first update."""
    try:
        yield
    except Exception:
        if checkpoints and done.updates:
            checkpoints.save_policy(state, done)
        raise
