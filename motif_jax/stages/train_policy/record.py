"""Records of policy training: metrics, the progress line, the policy's outputs for fixed prompts, profiler traces.

`policy/probes.jsonl` has the outputs for the world's `probes`, with probabilities in the order of actions:

{"env_steps": 1280, "updates": 1, "probabilities": {"it is ahead": [0.1, ...], ...}, "values": {...}}
"""

from __future__ import annotations

import collections
import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from motif_jax.actors.acting import OverlappedLoop, RolloutBatch, RolloutLoop
from motif_jax.actors.pool import ActorPool
from motif_jax.audit.examine import audit_in_flight
from motif_jax.audit.pay import Steps
from motif_jax.captions import decode
from motif_jax.console import clean, print_line
from motif_jax.envs.world import World, to_row
from motif_jax.files import json_line, keep_lines, write_json
from motif_jax.networks.kinds import PROMPT
from motif_jax.policies.model import Model, probabilities
from motif_jax.rewards.online.online_section import OnlineValues
from motif_jax.rewards.online.source import OnlineSource
from motif_jax.rewards.options import OptionPlan
from motif_jax.rewards.registry import LEARNT, ONLINE, return_name
from motif_jax.rewards.sources import RewardSources
from motif_jax.run import Metrics
from motif_jax.stages.train_policy import Policy, Profile
from motif_jax.stages.train_policy.setup import PlacedBatch, TrainingProgress, TurnFigures, add_up
from motif_jax.structs import EndStatus, EpisodeInfo
from motif_jax.system.metrics import PROBES, PROMPTS, Progress, resident_mib

# Audits the online reward during training: which captions it rewarded in recent episodes (`audit/in_flight`).
#
# Only the first host audits, and only its own games. `policy/audit.jsonl` has one row for each audit. A resumed run
# begins with new games, so it begins with new episodes here, too.

FILE = "audit.jsonl"  # in the policy's directory
AUDITED = 100  # episodes that are looked at
MOST = 1_000_000  # paid steps in memory
TOLD = 3  # findings of one audit in the terminal


class Episodes:
    """The paid steps of the last episodes that ended, and of those that are open."""

    def __init__(self) -> None:
        self.ended: collections.deque[int] = collections.deque(maxlen=AUDITED)  # numbers of episodes
        self._open: dict[tuple[int, int], np.ndarray] = {}  # (worker, group) -> each game's open episode. [E]
        self._steps: list[Steps] = []  # by rollout
        self._next = self._kept = 0  # number of the next episode; number of steps in `_steps`

    def add(self, batch: RolloutBatch, caption: np.ndarray, pay: np.ndarray) -> None:
        """Adds the steps of a batch; captions below 0 are left out. [T, B] each"""
        placed: PlacedBatch = batch.arrays
        size = len(placed.first) // len(batch.fulls)
        for number, full in enumerate(batch.fulls):
            columns = slice(number * size, (number + 1) * size)
            ended, paid = placed.ended[:, columns], caption[:, columns] >= 0
            episode = self._number(ended, placed.first[columns], (full.worker, full.group))
            self.ended.extend(episode[ended].tolist())
            if number_paid := int(paid.sum()):
                self._steps.append(Steps(episode[paid], caption[:, columns][paid], pay[:, columns][paid]))
                self._kept += number_paid
        if self._kept > MOST:
            self._forget()

    def _number(self, ended: np.ndarray, first: np.ndarray, group: tuple[int, int]) -> np.ndarray:
        """The number of each step's episode. [T, E]"""
        count = ended.sum(0)
        later = self._next + len(first) + np.cumsum(count) - count  # episodes that begin after the first step. [E]
        begun = self._next + np.arange(len(first))
        opened = np.where(first, begun, self._open.get(group, begun))
        before = np.cumsum(ended, 0) - ended  # episodes that ended before each step
        self._open[group] = np.where(count > 0, later + count - 1, opened)
        self._next += len(first) + int(count.sum())
        return np.where(before > 0, later + before - 1, opened)

    def _forget(self) -> None:
        """Drops the steps of earlier episodes, and the oldest steps beyond half of MOST."""
        steps = _join(self._steps)
        wanted = np.isin(steps.episode, [*self.ended, *(number for open in self._open.values() for number in open)])
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


def _join(parts: list[Steps]) -> Steps:
    nothing = np.zeros(0, np.int64)
    return Steps(*map(np.concatenate, zip(Steps(nothing, nothing, nothing.astype(np.float32)), *parts, strict=True)))


def audited_source(section: OnlineValues, sources: RewardSources) -> OnlineSource | None:
    """The source whose rewards are audited; None without one, or if audits are off."""
    source = sources.get(ONLINE)
    return source if section.audit_every_steps and isinstance(source, OnlineSource) else None


class FlightAudit:
    """Audits during training."""

    def __init__(self, section: OnlineValues, folder: Path, env_steps: int, sources: RewardSources):
        """Begins, or resumes after `env_steps`; later rows in `folder` are removed."""
        self._source, self._file = audited_source(section, sources), folder / FILE
        self._every, self._steps = section.audit_every_steps, env_steps
        self._episodes, self._goal = Episodes(), ""
        self._told: set[str] = set()  # the checks that had findings in the last audit
        self._figures: dict[str, float] = {}
        if self._file.exists():
            keep_lines(self._file, "env_steps", env_steps)

    def after_update(self, env_steps: int, batch: RolloutBatch) -> None:
        """Takes the steps of a batch, after the source has learnt from it, and audits if it is time."""
        if self._source is None:
            return
        self._add(batch, self._source)
        if env_steps // self._every > self._steps // self._every:
            self._audit(env_steps, self._source)
        self._steps = env_steps

    def _add(self, batch: RolloutBatch, source: OnlineSource) -> None:
        if source.goal != self._goal:  # the pay so far was for another goal
            self._goal = source.goal
            self._episodes = Episodes()
        pay = batch.arrays.rewards[ONLINE]
        caption = np.full(pay.shape, -1)
        caption[pay > 0] = source.store.captions.lookup.find(batch.arrays.paid_messages)
        self._episodes.add(batch, caption, pay)

    def _audit(self, env_steps: int, source: OnlineSource) -> None:
        steps = self._episodes.steps()
        rows, places = np.unique(steps.caption, return_inverse=True)
        texts = [decode(message) for message in source.store.captions.messages[rows]]
        audit = audit_in_flight(steps._replace(caption=places), texts, source.store.better_than_nothing()[rows])
        findings = audit.findings
        row: dict[str, Any] = {
            "env_steps": env_steps,
            "goal": source.goal,
            "episodes": len(self._episodes.ended),
            "findings": [
                {"check": one.check, "sentence": one.sentence, "advice": one.advice} for one in findings.found
            ],
            "not_looked_at": [{"check": one.name, "why": one.skipped} for one in findings.skipped],
            "paid": audit.paid,
        }
        with open(self._file, "a") as file:
            file.write(json_line(row))
        self._figures = {"findings": float(len(findings.found)), "neutral": audit.neutral}
        for one in [one for one in findings.found if one.check not in self._told][:TOLD]:
            print_line(
                f"train_policy: audit at {env_steps:,} steps: {one.check}: {clean(one.sentence)}. Try {one.advice}."
            )
        self._told = {one.check for one in findings.found}

    def figures(self) -> dict[str, float]:
        """Figures of the audit since the last call, for a row of metrics."""
        figures, self._figures = self._figures, {}
        return {f"reward/{ONLINE}_audit_{name}": value for name, value in figures.items()}


UNPAID = 1_000_000  # steps without a reward, after which a message says so
FEW_CALLS = 2  # of the policy, whose time is measured
LEARNING = 3  # times the time of a call: forward and backward
RECENT = 100  # episodes that the progress line averages
EXTREMES = {"min": min, "max": max}
Ended = tuple[EpisodeInfo, dict[str, float]]  # an episode, and its return by reward source


class Returns:
    """Returns of whole episodes by reward source, summed over their rollouts."""

    def __init__(self) -> None:
        # (worker, group) -> rewards by source and steps, summed over each game's open episode. [sources + 1, E]
        self._open: dict[tuple[int, int], np.ndarray] = {}

    def take(self, batch: RolloutBatch) -> list[Ended]:
        """The episodes that ended in a batch, except those that began with random actions (`warmup_steps`)."""
        placed: PlacedBatch = batch.arrays
        size = len(placed.first) // len(batch.fulls)
        ended_episodes = []
        for number, (full, episodes) in enumerate(zip(batch.fulls, batch.episodes, strict=True)):
            columns = slice(number * size, (number + 1) * size)
            rewards = [array[:, columns] for array in placed.rewards.values()]
            counted = np.stack([*rewards, placed.played[:, columns]], 1)  # [T, sources + 1, E]
            sums = np.cumsum(counted, 0, dtype=np.float64)
            carried = self._open.get((full.worker, full.group), np.zeros((len(rewards) + 1, size)))
            carried = np.where(placed.first[columns], 0.0, carried)
            for ended in episodes:
                *values, seen = carried[:, ended.game] + sums[ended.step, :, ended.game]
                if seen >= ended.info.steps:
                    ended_episodes.append((ended.info, dict(zip(placed.rewards, map(float, values), strict=True))))
                carried[:, ended.game] = -sums[ended.step, :, ended.game]
            self._open[full.worker, full.group] = carried + sums[-1]
        return ended_episodes


class MetricsCollector:
    """Collects the figures for the next row of `metrics.jsonl`."""

    def __init__(self, pool: ActorPool, rollout_loop: RolloutLoop, plan: OptionPlan | None):
        """Rows include counters and timers of the pool and the loop; `plan`: of a policy with options."""
        self._options = plan.names if plan else ()
        self.unpaid = 0 if plan else None  # steps until the controller was paid; None: it was, or no controller
        self.figures = tuple(pool.world.figures)  # names of the world's figures
        self.recent: collections.deque[Ended] = collections.deque(maxlen=RECENT)
        self.episodes = 0
        self.pool, self.rollout_loop, self._returns = pool, rollout_loop, Returns()
        self._timers_before: dict[str, float] = {}
        self.clear()

    def clear(self) -> None:
        """Begins the next row."""
        self._ended: list[Ended] = []
        self._updates: list[dict[str, float]] = []
        self._depths: list[int] = []
        self._turns: list[TurnFigures] = []
        self._rewards: dict[str, list[tuple[float, float]]] = {}  # of each batch: mean, share that is not 0

    def batch(self, batch: RolloutBatch) -> None:
        ended = self._returns.take(batch)
        self._ended += ended
        self.recent.extend(ended)
        self.episodes += len(ended)
        self._depths.append(self.rollout_loop.depth)
        if batch.arrays.turns:
            self._turns.append(batch.arrays.turns)
            if self.unpaid is not None:
                self.unpaid = (
                    None if batch.arrays.turns.earned[:, -1].any() else self.unpaid + int(batch.arrays.played.sum())
                )
        played = batch.arrays.played
        for name, array in batch.arrays.rewards.items():
            own = array if played.all() else array[played]  # games may wait for others
            if own.size:
                self._rewards.setdefault(name, []).append((float(own.mean()), float((own != 0).mean())))

    @property
    def updates(self) -> int:
        return len(self._updates)

    def update(self, metrics: dict[str, float]) -> None:
        self._updates.append(metrics)

    def row(self, seconds: float) -> dict[str, Any]:
        """Makes the next row; `seconds` have passed since the last one."""
        row: dict[str, Any] = {}
        for name in self._updates[-1] if self._updates else ():
            values = [metrics[name] for metrics in self._updates]
            row[f"train/{name}"] = EXTREMES.get(name.rpartition("_")[2], np.mean)(values)
        row |= {f"episode/{name}": value for name, value in summarise_recent(self._ended, self.figures).items()}
        row |= add_up(self._turns, self._options)
        for name, figures in self._rewards.items():
            row[f"reward/{name}_mean"], row[f"reward/{name}_share"] = np.mean(figures, 0).tolist()
        row |= {f"time/{name}": value for name, value in self._time(seconds).items()}
        row["queue/batches_waiting"] = np.mean(self._depths) if self._depths else None
        row["workers/restarts"], row["workers/dropped_steps"] = self.pool.restarts, self.pool.dropped_steps
        row["memory_mib"] = round(resident_mib())
        self.clear()
        return row

    def _time(self, seconds: float) -> dict[str, float]:
        """Each activity's share of the last `seconds`; for the workers, the average."""
        now = self.pool.timers.seconds | self.rollout_loop.timers.seconds
        now["workers_wait"] = self.pool.worker_wait_s / self.pool.layout.num_workers
        shares = {name: (spent - self._timers_before.get(name, 0.0)) / seconds for name, spent in now.items()}
        self._timers_before = dict(now)
        return {name: round(share, 4) for name, share in shares.items()}


class Log:
    """Writes the progress line and rows of metrics."""

    def __init__(
        self,
        section: Policy,
        folder: Path,
        done: TrainingProgress,
        collector: MetricsCollector,
        sources: RewardSources,
        metrics: Metrics,
    ):
        """Goes on after `done`. `folder`: for the rows of audits."""
        self._section, self._collector, self._sources, self._metrics = section, collector, sources, metrics
        self._bar = Progress("train_policy", section.train_for_env_steps, "steps", done.env_steps)
        self._audit = FlightAudit(section.online, folder, done.env_steps, sources)
        self._written, self._steps = time.monotonic(), done.env_steps
        self._seen, self._told = (0, 0.0), False

    def close(self) -> None:
        self._bar.close()

    def playing(self, done: TrainingProgress, hosts: int, calls: int) -> None:
        """Shows the steps of the first batch; prints once an estimate of the time that training takes.

        `calls`: of the policy so far. The first ones seen are not timed, as they compile.
        """
        pool = self._collector.pool
        groups = pool.layout.groups if isinstance(self._collector.rollout_loop, OverlappedLoop) else 1
        games, seconds = hosts * pool.num_games // groups, pool.timers.seconds.get("policy", 0.0)
        self._bar.update(done.env_steps + min(calls * games, self._section.batch_size))
        if not self._seen[0]:
            self._seen = calls, seconds
        before, spent = self._seen
        if calls < before + FEW_CALLS or self._told:
            return
        self._told = True
        step = (seconds - spent) / (calls - before) / games
        learning = LEARNING * self._section.num_epochs * step
        batch, left = self._section.batch_size, self._section.train_for_env_steps - done.env_steps
        print_line(
            f"train_policy: choosing an action takes {step:.2g} s, and learning from it about {learning:.2g} s: about "
            f"{batch * (step + learning):,.0f} s for a batch of {batch:,} steps, and {left * (step + learning):,.0f} s "
            f"for all {left:,} (--config.policy.train_for_env_steps, .batch_size, .num_epochs)"
        )

    def after_update(self, done: TrainingProgress, batch: RolloutBatch) -> None:
        """Takes a batch to audit, updates the progress line, and writes a row if `log_every_s` have passed."""
        self._audit.after_update(done.env_steps, batch)
        if self._collector.unpaid is not None and self._collector.unpaid >= UNPAID:
            self._collector.unpaid = None  # said once
            print_line(
                f"train_policy: the controller received no reward in {UNPAID:,} steps (--config.policy.controller)"
            )
        if time.monotonic() - self._written > self._section.log_every_s and self._collector.updates:
            self._write(done)
        notes = {}
        if self._collector.recent:
            recent = summarise_recent(list(self._collector.recent), self._collector.figures)
            notes = {"return": f"{recent['return']:.2f}"}
            notes |= {"depth": f"{recent['max_depth']:.1f}"} if "max_depth" in recent else {}
            notes |= {one.name: f"{recent[return_name(one.name)]:.2f}" for one in self._sources}
        steps, seconds = self._section.train_for_env_steps, self._section.train_for_seconds
        if seconds and done.seconds:  # time ends the run: estimate its steps
            self._bar.expect(min(steps, round(done.env_steps * seconds / done.seconds)))
        self._bar.update(done.env_steps, **notes)

    def last(self, done: TrainingProgress) -> None:
        """Writes the last row of training, if there were updates since the row before."""
        if self._collector.updates and done.env_steps > self._steps:
            self._write(done)

    def _write(self, done: TrainingProgress) -> None:
        now = time.monotonic()
        seconds = max(now - self._written, 1e-9)
        row = {"seconds": round(done.seconds, 2), "updates": done.updates}
        row |= {"steps_per_s": round((done.env_steps - self._steps) / seconds, 1)}
        row |= {"episode/all": done.episodes} | self._sources.figures() | self._audit.figures()
        self._metrics.write(done.env_steps, row | self._collector.row(seconds))
        self._written, self._steps = now, done.env_steps


def summarise_recent(ended: list[Ended], figures: Sequence[str]) -> dict[str, Any]:
    """Means over episodes by name, including the world's figures; None without episodes."""
    infos = [info for info, _ in ended]

    def mean(values: list[float]) -> float | None:
        return float(np.mean(values)) if values else None

    row: dict[str, Any] = {"count": len(infos), "return": mean([info.episode_return for info in infos])}
    for name in {LEARNT: None} | {name: None for _, returns in ended for name in returns}:  # in their order
        row[return_name(name)] = mean([returns.get(name, 0.0) for _, returns in ended])
    values = [info.named(figures) for info in infos]
    for name in ("steps", *figures, "success"):
        row[name] = mean([float(one[name]) for one in values])
    for status in (EndStatus.DEATH, EndStatus.ENDED, EndStatus.ABORTED):
        row[f"share_{status.name.lower()}"] = mean([float(info.end_status == status) for info in infos])
    return row


class Probes:
    """Records the policy's outputs for the world's probes, if it reads prompts."""

    def __init__(self, model: Model, world: World, folder: Path, every: int, env_steps: int):
        """Removes the rows after `env_steps`, where training resumes.

        There are no rows for a world without `probes`, or if `every` is 0.
        """
        probes = dict(getattr(world, "probes", {})) if PROMPT in model.reads and every else {}
        self._names, self._every, self._file = tuple(probes), every, folder / PROBES
        if not probes:
            return
        width = max(len(prompt.encode()) for prompt in probes.values())
        self._seen = model.encode({PROMPT: np.stack([to_row(prompt, width) for prompt in probes.values()])})
        self._first, self._core = np.ones(len(probes), bool), np.zeros((len(probes), model.core_size), np.float32)
        self._prepare, self._step, self._frozen = jax.jit(model.prepare), jax.jit(model.step), model.frozen
        keep_lines(self._file, "env_steps", env_steps or -1)  # a new run writes the row of step 0 again
        write_json(folder / PROMPTS, {"actions": list(world.action_names), "prompts": probes})

    def ask(self, params: Any, done: TrainingProgress) -> None:
        """Writes a row, if one is due after this update."""
        if not self._names or done.updates % self._every:
            return
        weights = params, self._frozen
        logits, values, _ = self._step(*weights, self._seen, self._first, self._core, self._prepare(*weights))
        odds = probabilities(np.asarray(logits, np.float64))
        row: dict[str, Any] = {"env_steps": done.env_steps, "updates": done.updates}
        row |= {"probabilities": dict(zip(self._names, odds.round(5).tolist(), strict=True))}
        row |= {"values": dict(zip(self._names, np.asarray(values, np.float64).round(4).tolist(), strict=True))}
        with open(self._file, "a") as file:
            file.write(json_line(row))


class Trace:
    """Traces some updates for XProf, TensorBoard or Perfetto."""

    def __init__(self, section: Profile, folder: Path):
        """A `num_steps` of 0 traces nothing."""
        self._left, self._start, self._folder = section.num_steps, section.start_step, folder
        self._seen, self._open = 0, False

    @contextlib.contextmanager
    def step(self, number: int) -> Iterator[None]:
        if self._left and self._seen >= self._start and not self._open:
            jax.profiler.start_trace(str(self._folder), create_perfetto_trace=True)
            self._open = True
        self._seen += 1
        with jax.profiler.StepTraceAnnotation("update", step_num=number):
            yield
        if self._open:
            self._left -= 1
            if not self._left:
                self.close()

    def close(self) -> None:
        if self._open:
            jax.effects_barrier()
            jax.profiler.stop_trace()
            self._open = False
            print_line(f"train_policy: a trace of the device's work is in {self._folder}")
