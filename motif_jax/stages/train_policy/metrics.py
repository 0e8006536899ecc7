"""The metrics of a training: rows of `metrics.jsonl`, the line of progress, and traces of the device's work."""

from __future__ import annotations

import collections
import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from motif_jax.actors.acting import OverlappedLoop, RolloutBatch, RolloutLoop
from motif_jax.actors.pool import ActorPool
from motif_jax.console import print_line
from motif_jax.devices.mesh import host_part
from motif_jax.devices.parameters import keys_of
from motif_jax.files import write_whole
from motif_jax.learner import metrics
from motif_jax.policies.checkpoints import TrainingProgress
from motif_jax.rewards.registry import return_name
from motif_jax.rewards.returns import Ended, Returns, summarise_recent
from motif_jax.rewards.source import RewardSources
from motif_jax.run import Metrics
from motif_jax.stages.train_policy import RECENT, Policy, Profile, has_reached, takes_turns
from motif_jax.system.metrics import Progress, resident_mib

FEW_CALLS = 2  # of the policy, whose time is measured
LEARNING = 3  # times the time of a call: forward and backward


class MetricsCollector:
    """Collects figures of training; on the first host, also shows the progress and writes rows of `metrics.jsonl`."""

    def __init__(
        self, section: Policy, folder: Path, done: TrainingProgress, sources: RewardSources, pool: ActorPool,
        rollout_loop: RolloutLoop, file: Metrics | None, more: Callable[[], dict[str, float]],
    ):  # fmt: skip
        """Goes on after `done`. `file`: None on other hosts than the first. `more`: figures for a row of them."""
        self._section, self._folder, self._sources, self._file, self._more = section, folder, sources, file, more
        self.figures = tuple(pool.world.figures)  # names of the world's figures
        self.recent: collections.deque[Ended] = collections.deque(maxlen=RECENT)
        self.episodes = 0
        self.pool, self.rollout_loop, self._returns = pool, rollout_loop, Returns()
        self._timers_before: dict[str, float] = {}
        self._written, self._steps, self._first = time.monotonic(), done.env_steps, done.updates
        self._seen, self._told = (0, 0.0), False
        total = None if section.train_for_seconds else section.train_for_env_steps
        self._bar: Any = file and Progress("train_policy", total, "steps", done.env_steps)
        # an update that the device may not have finished: its number, the steps after it, its batch and metrics
        self._pending: tuple[int, int, RolloutBatch, metrics.Metrics] | None = None
        self.clear()

    def clear(self) -> None:
        self._ended: list[Ended] = []
        self._updates: list[metrics.Metrics] = []  # of each update, read from the device
        self._depths: list[int] = []
        self._rewards: dict[str, list[tuple[float, float]]] = {}  # of each batch: mean, share that is not 0

    def close(self) -> None:
        if self._bar:
            self._bar.close()

    def batch(self, batch: RolloutBatch) -> int:
        """Counts a batch; returns the number of episodes that ended in it."""
        ended, placed = self._returns.take(batch), batch.arrays
        self._ended += ended
        self.recent.extend(ended)
        self.episodes += len(ended)
        self._depths.append(self.rollout_loop.depth)
        for name, array in placed.rewards.items():
            own = array if placed.played.all() else array[placed.played]  # games may wait for others
            if own.size:
                self._rewards.setdefault(name, []).append((float(own.mean()), float((own != 0).mean())))
        return len(ended)

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
        if self._updates:
            every = jax.tree.map(lambda *values: np.array(values, np.float64), *self._updates)
            row |= {f"train/{name}": value for name, value in metrics.numbers(metrics.over_steps(every)).items()}
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
        """Where games wait: shows the steps of the first batch; prints once an estimate of the time of training.

        `calls`: of the policy so far. The first ones seen are not timed, as they compile.
        """
        pool, section = self.pool, self._section
        if self._file is None or not takes_turns(section) or done.updates > self._first:
            return
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
        """Whether the last episodes of the first host have the figure that ends training."""
        until = self._section.train_until and self._file
        return bool(until) and has_reached(self._section, summarise_recent(list(self.recent), self.figures))

    def read_metrics(self) -> str:
        """Reads the last update's metrics from the device; returns an error message if the loss is not finite."""
        if not self._pending:
            return ""
        (update, env_steps, batch, on_device), self._pending = self._pending, None
        with self.rollout_loop.timers("update"):
            self._updates.append(jax.device_get(on_device))
        if self._updates[-1]["finite"]:
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

    def after_update(self, done: TrainingProgress, batch: RolloutBatch, measured: metrics.Metrics) -> str:
        """Updates the progress line, and writes a row if `log_every_s` have passed.

        The row is of the updates before: what is `measured` is read one update late, so as not to wait for the device.
        Returns the error message of the update before, if its loss is not finite.
        """
        broken = self.read_metrics()
        self._pending = None if broken else (done.updates, done.env_steps, batch, measured)
        if self._file is None:
            self.clear()  # rows are the first host's
            return broken
        if time.monotonic() - self._written > self._section.log_every_s and self._updates:
            self._file.write(done.env_steps, self.row(done))
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
        return broken

    def last(self, done: TrainingProgress) -> str:
        """Reads the last update's metrics, and writes the last row; the error message, as of `after_update`."""
        broken = self.read_metrics()
        if self._file and self._updates and done.env_steps > self._steps:
            self._file.write(done.env_steps, self.row(done))
        return broken


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
