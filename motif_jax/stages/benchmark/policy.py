"""Measures how fast a policy is trained: steps per second end to end and of single parts, and the share of the limit.

End to end, games, inference, hand-off and learner run at the same time. Every step passes the network once forward to
act, and once forward and backward to learn; the limit is what the machine's matrix products would allow for the
operations that the compiled programs count; on an accelerator also what its vendor promises.
"""

from __future__ import annotations

import importlib.util
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from motif_jax.actors.pool import ActorPool
from motif_jax.captions import WIDTH
from motif_jax.devices.host_arrays import local_copy
from motif_jax.devices.memory import needed_bytes
from motif_jax.devices.mesh import place
from motif_jax.learner.update import Constants
from motif_jax.policies.player import padded_size
from motif_jax.rewards.choice import LEARNT, SOURCES
from motif_jax.rewards.learnt import Reward
from motif_jax.rewards.learnt_source import LearntSource, make_mix
from motif_jax.rewards.model import make_reward_model
from motif_jax.rewards.sources import RewardSources, Weighted
from motif_jax.rewards.statistics import LEVELS, RewardStatistics
from motif_jax.stages.benchmark.device import device_rows, is_accelerated
from motif_jax.stages.benchmark.reward import OPTIONS, matrix_product
from motif_jax.stages.benchmark.rows import Row, say, take_turns
from motif_jax.stages.benchmark.torch_policy import torch_learner
from motif_jax.stages.benchmark.watch import Watch
from motif_jax.stages.train_policy.acting import FreeRunning, Rounds, make_place
from motif_jax.stages.train_policy.conditions import takes_turns
from motif_jax.stages.train_policy.record import Trace
from motif_jax.stages.train_policy.setup import assemble, make_player, open_pool

STRETCH = 10  # times `benchmark.seconds` for a run from end to end
WARMUP_BATCHES = 3


def measure(config: ConfigDict, workdir: Path) -> list[Row]:
    """Measures this part of the benchmark; returns its rows, each printed as soon as it is known."""
    rows: list[Row] = []

    def add(name: str, value: float, unit: str, **sizes: object) -> None:
        rows.append(say(Row(name, round(value, 3), unit, sizes)))

    seconds = config.benchmark.seconds
    runs: dict[str, Callable[[], float]] = {"matrix_product": partial(matrix_product, config.policy.dtype)}
    trainings: dict[str, Training] = {}
    acting: dict[str, dict[int, float]] = {}
    for network in config.benchmark.networks:
        training = Training(config, network, rewarded=True)
        acting[network] = training.act(seconds / 4)
        trainings[network] = training
        runs[f"end_to_end.{network}"] = partial(training.run, STRETCH * seconds)
        unrewarded = Training(config, network, rewarded=False)
        runs[f"end_to_end_no_reward.{network}"] = partial(unrewarded.run, STRETCH * seconds)
    for network, training in trainings.items():
        training.run(0.0)  # which leaves a batch to measure with
        runs[f"learner.{network}"] = partial(training.learn, seconds)
        runs[f"inference.{network}"] = partial(training.infer, seconds)
    if importlib.util.find_spec("torch") and "reference" in trainings and not is_accelerated():
        runs["torch_learner"] = partial(torch_learner, config.policy.batch_size, config.policy.rollout_length)
    with Watch() as watch:
        runs = {name: watch.around(name, run) for name, run in runs.items()}
        rounds = take_turns(runs, config.benchmark.repeats)
    median = {name: statistics.median(rates) for name, rates in rounds.items()}

    product = median["matrix_product"]
    add("policy.matrix_product", product, "GFLOP/s", dtype=config.policy.dtype)
    for network, training in trainings.items():
        sizes = training.sizes()
        add(f"policy.end_to_end.{network}", median[f"end_to_end.{network}"], "steps/s", **sizes, reward="on")
        add(
            f"policy.end_to_end_no_reward.{network}", median[f"end_to_end_no_reward.{network}"], "steps/s", reward="off"
        )
        cost = [1 - on / off for on, off in zip(rounds[f"end_to_end.{network}"],
                                                rounds[f"end_to_end_no_reward.{network}"], strict=True)]  # fmt: skip
        spread = {"least": f"{min(cost):.1%}", "most": f"{max(cost):.1%}"}
        add(f"policy.reward_cost.{network}", 100 * statistics.median(cost), "%", **spread)
        add(f"policy.reward_lookup.{network}", training.lookup(seconds), "steps/s", messages=training.messages)
        add(f"policy.learner.{network}", median[f"learner.{network}"], "steps/s", batch=config.policy.batch_size)
        add(f"policy.inference.{network}", median[f"inference.{network}"], "steps/s", games=training.group_size)
        for games, rate in acting[network].items():
            name = f"policy.inference_of.{games}.{network}"
            add(name, rate, "steps/s", ms_per_call=round(1e3 * games / rate, 3))
        act, learn = training.flops()
        add(f"policy.flop_per_step.{network}", (act + learn) / 1e6, "MFLOP", acting=round(act / 1e6, 1))
        add(f"policy.learner_flops.{network}", learn * median[f"learner.{network}"] / 1e9, "GFLOP/s")
        limit = product * 1e9 / max(act + learn, 1.0)
        share = 100 * median[f"end_to_end.{network}"] / limit
        add(f"policy.share_of_limit.{network}", share, "%", limit=f"{limit:,.0f} steps/s")
        add(f"policy.bytes_per_step.{network}", training.bytes_per_step, "B")
        for activity, seconds_per_step in training.spent.items():
            share = 100 * seconds_per_step * training.rate
            add(f"policy.time.{activity}.{network}", share, "%", us_per_step=round(1e6 * seconds_per_step, 2))
        rates = {name: median[f"{name}.{network}"] for name in ("learner", "inference", "end_to_end")}
        rows += device_rows(network, training, rates, (act, learn), watch)
    if "torch_learner" in median:
        add("policy.torch_learner", median["torch_learner"], "steps/s", batch=config.policy.batch_size)
        ratios = [a / b for a, b in zip(rounds["learner.reference"], rounds["torch_learner"], strict=True)]
        extent: dict[str, float] = {"least": round(min(ratios), 2), "most": round(max(ratios), 2)}
        add("policy.learner_over_torch", statistics.median(ratios), "times", **extent)
    return rows


class Training:
    """One network with its learner, compiled once."""

    def __init__(self, config: ConfigDict, network: str, rewarded: bool):
        """Builds it as train_policy does; `rewarded` by an untrained reward, which costs as much as a trained one."""
        self._config = config = config.copy_and_resolve_references()
        section = config.policy
        section.network, section.warmup_steps = network, 0
        sources = untrained_sources(config) if rewarded else RewardSources()
        parts = assemble(config, Path(), lambda setting: sources, hosts=1)
        self._parts, self._model, self._mesh = parts, parts.model, parts.mesh
        # A copy, because updates give their state away, and the player still uses these parameters.
        params = jax.tree.map(jnp.copy, self._model.params)
        self._state = place(parts.begin(params), self._mesh, self._model.rules)
        self._constants = Constants(place(self._model.frozen, self._mesh, self._model.rules))
        self._player = make_player(config, self._model, seed=0)
        self.group_size = section.games_per_worker // section.groups
        self._batch: Any = None
        self.dtype, self.devices = section.dtype, self._mesh.size
        self.rate = 0.0  # steps per second of the last run from end to end
        self.spent: dict[str, float] = {}  # in that run, seconds per step of each activity; of workers, on average

    def run(self, seconds: float, updates: int = 0, trace: Trace | None = None) -> float:
        """Steps per second from end to end, after WARMUP_BATCHES batches, in so many seconds and updates at least."""
        parts, player = self._parts, self._player
        trace = trace or Trace(ConfigDict({"num_steps": 0, "start_step": 0}), Path())
        with open_pool(self._config, parts, player, first_episode=0) as pool:
            self.bytes_per_step = pool.layout.bytes_per_step
            turns = takes_turns(self._config.policy)
            placed = make_place(self._model, parts.sources, self._mesh)
            source = (Rounds if turns else FreeRunning)(pool, player, parts.rollouts, placed)
            try:
                number, steps, start, pending = 0, 0, 0.0, None
                before: dict[str, float] = {}
                while number < WARMUP_BATCHES + max(updates, 1) or time.perf_counter() - start < seconds:
                    batch = source.get(1.0)
                    if batch is None:
                        continue
                    self._batch = batch
                    with trace.step(number):
                        self._state, metrics = parts.update(self._state, self._constants, batch.arrays.rollouts)
                    player.swap(player.prepare(local_copy(self._state.params), number), wait=turns)
                    with source.timers("update"):  # as in training, of the update before: the device goes on meanwhile
                        jax.block_until_ready(pending)
                    pending = metrics
                    number += 1
                    if number == WARMUP_BATCHES:
                        start, before = time.perf_counter(), time_spent(pool, source)
                    elif number > WARMUP_BATCHES:
                        steps += batch.steps
                jax.block_until_ready(pending)
                self.rate = steps / max(time.perf_counter() - start, 1e-9)
                now = time_spent(pool, source)
                self.spent = {name: (now[name] - before.get(name, 0.0)) / max(steps, 1) for name in now}
                return self.rate
            finally:
                trace.close()
                source.close()

    def act(self, seconds: float) -> dict[int, float]:
        """Steps per second of the policy alone, by the number of games in a call: all numbers that calls are padded to.

        It compiles the policy for each of them, so that no later run waits for that.
        """
        section, specs = self._config.policy, self._parts.world.specs
        total = max(section.num_workers, 1) * section.games_per_worker
        groups = range(self.group_size, total + 1, self.group_size)
        found = {}
        for count in sorted({min(padded_size(games, self.group_size), total) for games in groups}):
            shapes = {name: (count, *specs[name].shape) for name in self._player.reads}
            observations = {name: np.zeros(shape, specs[name].dtype) for name, shape in shapes.items()}
            found[count] = self._rate(observations, np.ones(count, bool), seconds)
        return found

    def learn(self, seconds: float) -> float:
        """Steps per second of the learner alone, on the last batch."""
        rollouts, done, start = self._batch.arrays.rollouts, 0, time.perf_counter()
        while not done or time.perf_counter() - start < seconds:
            self._state, metrics = self._parts.update(self._state, self._constants, rollouts)
            jax.block_until_ready(metrics)
            done += 1
        return done * self._batch.steps / (time.perf_counter() - start)

    def infer(self, seconds: float) -> float:
        """Steps per second of the policy alone, for one group of games at a time."""
        return self._rate(*self._moment(), seconds)

    def _rate(self, observations: dict[str, np.ndarray], first: np.ndarray, seconds: float) -> float:
        games, done = np.arange(len(first)), 0
        self._player(observations, first, games)  # which compiles it, the first time
        start = time.perf_counter()
        while done < 3 or time.perf_counter() - start < seconds:
            self._player(observations, first, games)
            done += 1
        return done * len(first) / (time.perf_counter() - start)

    def lookup(self, seconds: float) -> float:
        """Steps per second of the learnt reward alone, when nearly all messages are known."""
        table = self._parts.sources.learnt.table
        messages = np.asarray(self._batch.arrays.rollouts.observations["message"])[1:]
        table(messages)
        done, start = 0, time.perf_counter()
        while not done or time.perf_counter() - start < seconds:
            table(messages)
            done += 1
        return done * self._batch.steps / (time.perf_counter() - start)

    @property
    def messages(self) -> int:
        """The number of messages in the table of the learnt reward."""
        learnt = self._parts.sources.learnt
        return len(learnt.table) if learnt else 0

    def flops(self) -> tuple[float, float]:
        """Operations per step of acting and of learning, as the compiler counts them."""
        observations, first = self._moment()
        weights, core = (
            (self._model.params, self._model.frozen),
            np.zeros((self.group_size, self._model.core_size), np.float32),
        )
        rollout = {key: array[None] for key, array in observations.items()}, first[None], core  # one step: no loop

        def learn(params: Any, *inputs: Any) -> jax.Array:
            logits, values = self._model.unroll(params, weights[1], *inputs)
            return logits.sum() + values.sum()

        programs = (
            jax.jit(self._model.step).lower(
                *weights, observations, first, core, jax.jit(self._model.prepare)(*weights)
            ),
            jax.jit(jax.grad(learn)).lower(weights[0], *rollout),
        )
        # On a GPU a compiled program calls libraries, whose operations the compiler may not count.
        counted = programs if is_accelerated() else [program.compile() for program in programs]
        acting, learning = ((program.cost_analysis() or {}).get("flops", 0.0) for program in counted)
        return acting / self.group_size, learning / self.group_size

    def update_memory(self) -> int:
        """See `device.Measured`."""
        return needed_bytes(
            self._parts.update.lower(self._state, self._constants, self._batch.arrays.rollouts).compile()
        )

    def sizes(self) -> dict[str, object]:
        """Numbers of games and workers, sizes of batch and rollout, and the device, for the rows."""
        section = self._config.policy
        return {
            "games": max(section.num_workers, 1) * section.games_per_worker,
            "workers": section.num_workers,
            "batch": section.batch_size,
            "rollout": section.rollout_length,
            "device": f"{self._mesh.size} {jax.devices()[0].device_kind}",
        }

    def _moment(self) -> tuple[dict[str, np.ndarray], np.ndarray]:
        rollouts = self._batch.arrays.rollouts
        chosen = slice(0, self.group_size)
        observations = {key: np.asarray(array)[0, chosen] for key, array in rollouts.observations.items()}
        return observations, np.asarray(rollouts.first)[0, chosen]


def time_spent(pool: ActorPool, source: FreeRunning | Rounds) -> dict[str, float]:
    """Seconds of each activity so far; `workers_wait` is the mean of all workers."""
    return pool.timers.seconds | source.timers.seconds | {"workers_wait": pool.worker_wait_s / pool.layout.num_workers}


def untrained_reward() -> Reward:
    """A reward with the default network, untrained."""
    _, params = make_reward_model(OPTIONS, 0)
    statistics = RewardStatistics(0.0, 1.0, {f"{level:.2f}": 0.0 for level in LEVELS})
    nothing = np.zeros((0, WIDTH), np.uint8), np.zeros(0, np.int32)
    return Reward(OPTIONS, params, statistics, *nothing, {})


def untrained_sources(config: ConfigDict) -> RewardSources:
    """An untrained reward as the only source of rewards beside the game."""
    reward = untrained_reward()
    learnt = LearntSource(reward, make_mix(config, reward), False)
    return RewardSources([Weighted(LEARNT, SOURCES[LEARNT].path, config.policy.intrinsic_coefficient, learnt)])
