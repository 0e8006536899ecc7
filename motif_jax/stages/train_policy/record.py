"""Records of policy training: metrics, the progress line, the policy's outputs for fixed prompts, profiler traces.

`policy/probes.jsonl` has the outputs for the world's `probes`, with probabilities in the order of actions:

{"env_steps": 1280, "updates": 1, "probabilities": {"it is ahead": [0.1, ...], ...}, "values": {...}}
"""

from __future__ import annotations

import collections
import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from motif_jax.actors.acting import OverlappedLoop, RolloutBatch, RolloutLoop
from motif_jax.actors.pool import ActorPool
from motif_jax.audit.findings import Steps
from motif_jax.audit.judge import audit_in_flight
from motif_jax.captions import decode
from motif_jax.console import clean, print_line
from motif_jax.devices.mesh import host_part
from motif_jax.devices.parameters import keys_of
from motif_jax.envs.world import World, to_row
from motif_jax.files import json_line, keep_lines, write_json, write_whole
from motif_jax.networks.kinds import PROMPT
from motif_jax.policies.model import Model, probabilities
from motif_jax.rewards.online.source import OnlineSource
from motif_jax.rewards.registry import LEARNT, ONLINE, return_name
from motif_jax.run import Metrics
from motif_jax.stages.train_policy import Policy, Profile
from motif_jax.stages.train_policy.setup import PlacedBatch, TrainerParts, TrainingProgress, add_up
from motif_jax.structs import EndStatus, EpisodeInfo
from motif_jax.system.metrics import PROBES, PROMPTS, Progress, resident_mib

# ---- audits of the online reward during training: which captions it rewarded in recent episodes (audit/judge.py)
#
# Only the first host audits, and only its own games. `policy/audit.jsonl` has one row for each audit. A resumed run
# begins with new games, so it begins with new episodes here, too.

FILE = "audit.jsonl"  # in the policy's directory
AUDITED = 100  # episodes that are looked at
MOST = 1_000_000  # paid steps in memory
TOLD = 3  # findings of one audit in the terminal
Group = tuple[int, int]  # of games: a worker's number, and the group's in it


def columns_of(batch: RolloutBatch) -> Iterator[tuple[Group, slice]]:
    """The group of each rollout of a batch, and the columns of its games."""
    size = len(batch.arrays.first) // len(batch.fulls)
    for number, full in enumerate(batch.fulls):
        yield (full.worker, full.group), slice(number * size, (number + 1) * size)


class Episodes:
    """The paid steps of the last episodes that ended, and of those that are open."""

    def __init__(self) -> None:
        self.ended: collections.deque[int] = collections.deque(maxlen=AUDITED)  # numbers of episodes, which ascend
        self._last: dict[Group, np.ndarray] = {}  # each game's last episode. [E]
        nothing = np.zeros(0, np.int64)
        self._steps = [Steps(nothing, nothing, nothing.astype(np.float32))]  # by rollout
        self._next = self._kept = 0  # number for the next episode; number of steps in `_steps`

    def add(self, batch: RolloutBatch, caption: np.ndarray, pay: np.ndarray) -> None:
        """Adds the steps of a batch; captions below 0 are left out. [T, B] each"""
        for group, columns in columns_of(batch):
            first, ended = batch.arrays.first[columns], batch.arrays.ended[:, columns]
            before = np.cumsum(ended, 0) - ended  # episodes that ended before each step. [T, E]
            begun = self._next + before * len(first) + np.arange(len(first))
            goes_on = (before == 0) & ~first  # an episode that an earlier rollout began
            episode = np.where(goes_on, self._last.get(group, begun[0]), begun)
            self._last[group] = episode[-1]
            self._next += ended.size
            self.ended.extend(episode[ended].tolist())
            paid = caption[:, columns] >= 0
            if paid.any():
                self._steps.append(Steps(episode[paid], caption[:, columns][paid], pay[:, columns][paid]))
                self._kept += len(self._steps[-1].pay)
        if self._kept > MOST:
            self._forget()

    def _forget(self) -> None:
        """Drops the steps of earlier episodes, and the oldest steps beyond half of MOST."""
        steps = Steps(*map(np.concatenate, zip(*self._steps, strict=True)))
        wanted = np.isin(steps.episode, np.concatenate([list(self.ended), *self._last.values()]))
        self._steps = [Steps(*(column[wanted][-MOST // 2 :] for column in steps))]
        self._kept = len(self._steps[0].pay)

    def steps(self) -> Steps:
        """The paid steps of the ended episodes. Episodes without pay have the first numbers, so that they count."""
        self._forget()
        (steps,) = self._steps
        paid = np.intersect1d(steps.episode, self.ended)
        own = np.isin(steps.episode, paid)
        first = len(self.ended) - len(paid)
        return Steps(first + np.searchsorted(paid, steps.episode[own]), steps.caption[own], steps.pay[own])


class FlightAudit:
    """Audits during training."""

    def __init__(self, source: OnlineSource, every: int, folder: Path, env_steps: int):
        """Begins after `env_steps`. `every`: steps between audits."""
        self._source, self._every, self._steps, self._file = source, every, env_steps, folder / FILE
        self._episodes, self._goal = Episodes(), ""
        self._told: set[str] = set()  # the checks that had findings in the last audit
        self._figures: dict[str, float] = {}

    def after_update(self, env_steps: int, batch: RolloutBatch) -> None:
        """Takes the steps of a batch, after the source has learnt from it, and audits if it is time."""
        source, pay = self._source, batch.arrays.rewards[ONLINE]
        if source.goal != self._goal:  # the pay so far was for another goal
            self._goal, self._episodes = source.goal, Episodes()
        caption = np.full(pay.shape, -1)
        caption[pay > 0] = source.store.captions.lookup.find(batch.arrays.paid_messages)
        self._episodes.add(batch, caption, pay)
        if env_steps // self._every > self._steps // self._every:
            self._audit(env_steps)
        self._steps = env_steps

    def _audit(self, env_steps: int) -> None:
        store, steps = self._source.store, self._episodes.steps()
        rows, places = np.unique(steps.caption, return_inverse=True)
        texts = [decode(message) for message in store.captions.messages[rows]]
        audit = audit_in_flight(steps._replace(caption=places), texts, store.better_than_nothing()[rows])
        found = audit.found
        row: dict[str, Any] = {
            "env_steps": env_steps,
            "goal": self._goal,
            "episodes": len(self._episodes.ended),
            "findings": [{"check": one.check, "sentence": one.sentence, "advice": one.advice} for one in found],
            "not_looked_at": [{"check": one.name, "why": one.skipped} for one in audit.skipped],
            "paid": audit.paid,
        }
        with open(self._file, "a") as file:
            file.write(json_line(row))
        self._figures = {"findings": float(len(found)), "neutral": audit.neutral}
        for one in [one for one in found if one.check not in self._told][:TOLD]:
            sentence = clean(one.sentence)
            print_line(f"train_policy: audit at {env_steps:,} steps: {one.check}: {sentence}. Try {one.advice}.")
        self._told = {one.check for one in found}

    def figures(self) -> dict[str, float]:
        """Figures of the audit since the last call, for a row of metrics."""
        figures, self._figures = self._figures, {}
        return {f"reward/{ONLINE}_audit_{name}": value for name, value in figures.items()}


# ---- metrics

UNPAID = 1_000_000  # steps without a reward, after which a message says so
FEW_CALLS = 2  # of the policy, whose time is measured
LEARNING = 3  # times the time of a call: forward and backward
RECENT = 100  # episodes that the progress line averages
EXTREMES = {"min": min, "max": max}
Ended = tuple[EpisodeInfo, dict[str, float]]  # an episode, and its return by reward source


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
        rollout_loop: RolloutLoop, metrics: Metrics | None,
    ):  # fmt: skip
        """Goes on after `done`. `folder`: for the rows of audits. `metrics`: None on other hosts than the first."""
        self._section, self._sources, self._metrics = section, parts.sources, metrics
        self._options = parts.plan.names if parts.plan else ()
        self._unpaid = 0 if parts.plan else None  # steps until the controller was paid; None: it was, or no controller
        self.figures = tuple(pool.world.figures)  # names of the world's figures
        self.recent: collections.deque[Ended] = collections.deque(maxlen=RECENT)
        self.episodes = 0
        self.pool, self.rollout_loop, self._returns = pool, rollout_loop, Returns()
        self._timers_before: dict[str, float] = {}
        self._written, self._steps = time.monotonic(), done.env_steps
        self._seen, self._told = (0, 0.0), False
        self._bar: Any = metrics and Progress("train_policy", section.train_for_env_steps, "steps", done.env_steps)
        self._audit: FlightAudit | None = None
        # an update that the device may not have finished: its number, the steps after it, its batch and metrics
        self._pending: tuple[int, int, RolloutBatch, dict[str, jax.Array]] | None = None
        self._folder = folder
        if metrics:
            keep_lines(folder / FILE, "env_steps", done.env_steps)  # also if audits are off now
        if metrics and parts.audited:
            self._audit = FlightAudit(parts.audited, section.online.audit_every_steps, folder, done.env_steps)
        self.clear()

    def clear(self) -> None:
        self._ended: list[Ended] = []
        self._updates: list[dict[str, float]] = []  # metrics
        self._depths: list[int] = []
        self._turns: list[np.ndarray] = []
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
        if placed.turns is not None:
            self._turns.append(placed.turns)
            if self._unpaid is not None:
                self._unpaid = None if placed.turns[:, -1].any() else self._unpaid + int(placed.played.sum())
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
        row |= self._sources.figures() | (self._audit.figures() if self._audit else {})
        for name in self._updates[-1] if self._updates else ():
            values = [metrics[name] for metrics in self._updates]
            row[f"train/{name}"] = EXTREMES.get(name.rpartition("_")[2], np.mean)(values)
        row |= {f"episode/{name}": value for name, value in summarise_recent(self._ended, self.figures).items()}
        row |= add_up(self._turns, self._options)
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
        learning = LEARNING * section.num_epochs * step
        batch, left = section.batch_size, section.train_for_env_steps - done.env_steps
        print_line(
            f"train_policy: choosing an action takes {step:.2g} s, and learning from it about {learning:.2g} s: about "
            f"{batch * (step + learning):,.0f} s for a batch of {batch:,} steps, and {left * (step + learning):,.0f} s "
            f"for all {left:,} (--config.policy.train_for_env_steps, .batch_size, .num_epochs)"
        )

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
        """Takes a batch to audit, updates the progress line, and writes a row if `log_every_s` have passed.

        The row is of the updates before: their `metrics` are read one update late, so as not to wait for the device.
        """
        self._pending = done.updates, done.env_steps, batch, metrics
        if self._metrics is None:
            self.clear()  # rows are the first host's
            return
        if self._audit:
            self._audit.after_update(done.env_steps, batch)
        if self._unpaid is not None and self._unpaid >= UNPAID:
            self._unpaid = None  # said once
            what = f"the controller received no reward in {UNPAID:,} steps"
            print_line(f"train_policy: {what} (--config.policy.controller)")
        if time.monotonic() - self._written > self._section.log_every_s and self._updates:
            self._metrics.write(done.env_steps, self.row(done))
        notes = {}
        if self.recent:
            recent = summarise_recent(list(self.recent), self.figures)
            notes = {"return": f"{recent['return']:.2f}"}
            notes |= {"depth": f"{recent['max_depth']:.1f}"} if "max_depth" in recent else {}
            notes |= {one.name: f"{recent[return_name(one.name)]:.2f}" for one in self._sources}
        steps, seconds = self._section.train_for_env_steps, self._section.train_for_seconds
        if seconds and done.seconds:  # time ends the run: estimate its steps
            self._bar.expect(min(steps, round(done.env_steps * seconds / done.seconds)))
        self._bar.update(done.env_steps, **notes)

    def last(self, done: TrainingProgress) -> None:
        if self._metrics and self._updates and done.env_steps > self._steps:
            self._metrics.write(done.env_steps, self.row(done))


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


def make_probes(
    model: Model, world: World, folder: Path, every: int, env_steps: int
) -> Callable[[Any, TrainingProgress], None]:
    """Makes the function that records the outputs for the world's `probes`, if a row is due after this update.

    It writes nothing for other worlds, for networks that do not read prompts, or if `every` is 0. Rows after
    `env_steps`, where training resumes, are removed.
    """
    probes = dict(getattr(world, "probes", {})) if PROMPT in model.reads and every else {}
    if not probes:
        return lambda params, done: None
    width = max(len(prompt.encode()) for prompt in probes.values())
    seen = model.encode({PROMPT: np.stack([to_row(prompt, width) for prompt in probes.values()])})
    first, core = np.ones(len(probes), bool), np.zeros((len(probes), model.core_size), np.float32)
    prepare, step = jax.jit(model.prepare), jax.jit(model.step)
    keep_lines(folder / PROBES, "env_steps", env_steps or -1)  # a new run writes the row of step 0 again
    write_json(folder / PROMPTS, {"actions": list(world.action_names), "prompts": probes})

    def ask(params: Any, done: TrainingProgress) -> None:
        if done.updates % every:
            return
        weights = params, model.frozen
        logits, values, _ = step(*weights, seen, first, core, prepare(*weights))
        odds = probabilities(np.asarray(logits, np.float64))
        row: dict[str, Any] = {"env_steps": done.env_steps, "updates": done.updates}
        row |= {"probabilities": dict(zip(probes, odds.round(5).tolist(), strict=True))}
        row |= {"values": dict(zip(probes, np.asarray(values, np.float64).round(4).tolist(), strict=True))}
        with open(folder / PROBES, "a") as file:
            file.write(json_line(row))

    return ask


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
