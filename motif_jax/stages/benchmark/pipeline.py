"""Measures the program around games and networks: what a step costs the parent process, and where its threads wait.

The games are a recording (`envs/canned.py`) and the network is free (`free.py`); workers, shared memory, messages,
batches, reward sources, compiled calls and records are those of training. Seconds are those of processors (CPU time),
which a busy machine changes less than rates.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from motif_jax.devices.host_arrays import local_copy
from motif_jax.devices.mesh import make_mesh, place
from motif_jax.envs.settings import make_world
from motif_jax.learner.update import Constants, init_state
from motif_jax.policies.player import PolicyPlayer
from motif_jax.rewards.choice import LEARNT, SOURCES
from motif_jax.rewards.learnt_source import LearntSource, make_mix
from motif_jax.rewards.sources import RewardSources, Weighted
from motif_jax.stages.benchmark.free import free_model, free_update, record_games
from motif_jax.stages.benchmark.policy import untrained_reward
from motif_jax.stages.benchmark.rows import Row, say
from motif_jax.stages.benchmark.threads import PROCESS, computed_by, look
from motif_jax.stages.train_policy.acting import FreeRunning, make_place
from motif_jax.stages.train_policy.record import Record
from motif_jax.stages.train_policy.setup import Parts, learner_settings, open_pool
from motif_jax.system.machine import usable_cores

GAMES = (64, 256, 1024, 4096)
WARMUP_BATCHES = 3
THREADS = {"MainThread": "learner", "acting": "acting", "handoff": "handoff"}
WAITS = {  # timers that are waits, by thread; the others measure work
    "acting": ("wait_for_workers", "wait_for_device"),
    "handoff": ("wait_for_rollouts", "wait_for_learner"),
    "learner": ("wait_for_batch",),
}


class Measured(NamedTuple):
    """One run."""

    # steps_per_s; host_us_per_step, which is microseconds of a processor, and its parts; the same of all workers
    figures: dict[str, float]
    waits: dict[str, dict[str, float]]  # per cent of the time, by thread and by what it waited for


def measure(config: ConfigDict, workdir: Path) -> list[Row]:
    """Measures this part of the benchmark; returns its rows, each printed as soon as it is known."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(dir=workdir) as folder:
        recording = Path(folder) / "recording.npz"
        record_games(recording)
        for games in GAMES:
            one = Pipeline(plan(config, games, recording))
            found = [one.run(config.benchmark.seconds) for _ in range(config.benchmark.repeats)]
            sizes = one.sizes()
            for name in found[0].figures:
                value = statistics.median(measured.figures[name] for measured in found)
                unit = "steps/s" if name == "steps_per_s" else "us"
                rows.append(say(Row(f"pipeline.{name}.{games}", round(value, 3), unit, sizes)))
            for thread in found[0].waits:
                shares = {
                    name: round(statistics.median(measured.waits[thread][name] for measured in found), 1)
                    for name in found[0].waits[thread]
                }
                rows.append(say(Row(f"pipeline.wait.{thread}.{games}", sum(shares.values()), "% of the time", shares)))
    return rows


def plan(config: ConfigDict, games: int, recording: Path) -> ConfigDict:
    """The config for so many games: a worker per core, the config's groups, batches of whole rollouts."""
    config = config.copy_and_resolve_references()
    section = config.policy
    workers = usable_cores()
    size = max(games // (workers * section.groups), 1)
    section.num_workers, section.games_per_worker, section.warmup_steps = workers, size * section.groups, 0
    rollout = section.rollout_length * size
    section.batch_size = -(-section.batch_size // rollout) * rollout
    section.num_minibatches = 1
    config.env.world = "motif_jax.envs.canned:CannedWorld"
    config.env.options = json.dumps({"recording": str(recording)})
    return config


class MeteredSources(RewardSources):
    """Reward sources that note what they cost the thread that calls them."""

    spent = 0.0  # seconds of the processor

    def moments(self, rollouts: Any) -> Any:
        """See `RewardSources`."""
        return self._metered(super().moments, rollouts)

    def shape(self, moments: Any) -> Any:
        """See `RewardSources`."""
        return self._metered(super().shape, moments)

    def check(self, rewards: Any, shape: Any) -> None:
        """See `RewardSources`."""
        self._metered(super().check, rewards, shape)

    def _metered(self, function: Any, *inputs: Any) -> Any:
        start = time.thread_time()
        found = function(*inputs)
        self.spent += time.thread_time() - start
        return found


class Pipeline:
    """Training with a recording for games and a network that costs nothing."""

    def __init__(self, config: ConfigDict):
        """Builds what `train_policy` builds; `config` is that of `plan`."""
        self._config, section = config, config.policy
        reward = untrained_reward()
        learnt = LearntSource(reward, make_mix(config, reward), False)
        weighted = Weighted(LEARNT, SOURCES[LEARNT].path, section.intrinsic_coefficient, learnt)
        self._sources = MeteredSources([weighted])
        env, mesh, model = config.env.to_dict(), make_mesh(), free_model(config.seed)
        self._group = section.games_per_worker // section.groups
        rollouts = section.batch_size // (section.rollout_length * self._group)
        world, learner = make_world(env), learner_settings(config)
        begin, update = partial(init_state, settings=learner), free_update(mesh)
        self._parts = Parts(env, world, mesh, rollouts, {}, model, self._sources, learner, begin, update)
        state = begin(jax.tree.map(jnp.copy, model.params))
        self._state = place(state, mesh)
        self._constants = Constants(place(model.frozen, mesh))
        games = section.num_workers * section.games_per_worker
        # Greedy, because drawing actions is arithmetic of the device.
        self._player = PolicyPlayer(model, games, self._group, seed=0, greedy=True)

    def run(self, seconds: float) -> Measured:
        """Trains for about `seconds`, after WARMUP_BATCHES batches."""
        parts, player = self._parts, self._player
        with open_pool(self._config, parts, player, first_episode=0) as pool:
            source = FreeRunning(pool, player, parts.rollouts, make_place(parts.model, parts.sources, parts.mesh))
            try:
                record = Record(pool, source)
                number = steps = 0
                pending: Any = None
                moment = partial(self._moment, pool, source)
                before: Any = None
                while not steps or time.perf_counter() - before[0][PROCESS].elapsed < seconds:
                    batch = source.get(1.0)
                    if batch is None:
                        continue
                    # The same as in `loop.learn`.
                    self._state, metrics = parts.update(self._state, self._constants, batch.arrays.rollouts)
                    number += 1
                    player.swap(player.prepare(local_copy(self._state.params), number), wait=False)
                    record.batch(batch)
                    parts.sources.advance(batch, None)
                    if pending:
                        with source.timers("update"):
                            record.update({name: float(value) for name, value in jax.device_get(pending).items()})
                    pending = metrics
                    if number == WARMUP_BATCHES:
                        before = moment()
                    elif number > WARMUP_BATCHES:
                        steps += batch.steps
                return self._measured(before, moment(), steps, pool.layout.num_workers)
            finally:
                source.close()

    def _moment(self, pool: Any, source: Any) -> tuple[Any, ...]:
        """What was spent until now: by threads, by timers, by reward sources, by waiting and by busy workers."""
        timers = pool.timers.seconds | source.timers.seconds
        return look(THREADS), timers, self._sources.spent, pool.worker_wait_s, computed_by(pool.processes)

    def _measured(self, before: Any, after: Any, steps: int, workers: int) -> Measured:
        """What happened between two moments, in which so many steps were learnt from."""
        spent = {name: now.since(before[0][name]) for name, now in after[0].items()}
        timers = {name: seconds - before[1].get(name, 0.0) for name, seconds in after[1].items()}
        elapsed, whole = spent[PROCESS].elapsed, spent[PROCESS].computing
        reward = after[2] - before[2]
        parts = {name: spent[name].computing for name in THREADS.values()}
        parts |= {"handoff": parts["handoff"] - reward, "reward": reward}
        parts["other"] = whole - sum(parts.values())  # XLA's threads, mostly
        figures = {"steps_per_s": steps / elapsed, "host_us_per_step": 1e6 * whole / steps}
        figures |= {f"host_us_per_step.{name}": 1e6 * seconds / steps for name, seconds in parts.items()}
        figures["worker_us_per_step"] = 1e6 * (after[4] - before[4]) / steps
        waits = {}
        for thread, names in WAITS.items():
            named = {name: timers.get(name, 0.0) for name in names}
            more = {"for_a_processor": spent[thread].queued, "for_python": spent[thread].unnamed(named)}
            waits[thread] = {name: 100 * seconds / elapsed for name, seconds in (named | more).items()}
        waits["workers"] = {"for_actions_or_slots": 100 * (after[3] - before[3]) / workers / elapsed}
        return Measured(figures, waits)

    def sizes(self) -> dict[str, Any]:
        """Numbers of games, workers and groups, and the batch, for the rows."""
        section = self._config.policy
        return {
            "games": section.num_workers * section.games_per_worker,
            "workers": section.num_workers,
            "groups": section.groups,
            "batch": section.batch_size,
        }
