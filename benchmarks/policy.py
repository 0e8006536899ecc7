"""Training of the policy: steps per second end to end and of single parts, the share of the limit, and options.

End to end, games, inference, hand-off and learner run at the same time. Every step passes the network once forward to
act, and once forward and backward to learn; the limit is what the machine's matrix products would allow for the
operations that the compiled programs count.
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

from benchmarks.device import count_flops, find_cpu, gpu_busy, is_accelerated, matrix_product
from benchmarks.rows import Row, Rows, bytes_per_step, medians, rate_of, take_turns
from benchmarks.sources import TERMS, run_program, untrained_sources
from motif_jax.actors.acting import RolloutLoop
from motif_jax.actors.pool import ActorPool
from motif_jax.devices.mesh import describe_memory, local_copy, needed_bytes
from motif_jax.names import SOURCES
from motif_jax.policies.checkpoints import read_initial
from motif_jax.policies.model import padded_size
from motif_jax.rewards.source import RewardSources
from motif_jax.stages import train_policy
from motif_jax.stages.train_policy import Profile, takes_turns
from motif_jax.stages.train_policy.loop import assemble
from motif_jax.stages.train_policy.metrics import Trace

STRETCH = 10  # times `benchmark.seconds` for a run from end to end
WARMUP_BATCHES = 3
OPTIONS, CONTROLLER = "all=game,half=game:0.5,less=game:-1", "game"


def measure(config: ConfigDict, workdir: Path) -> list[Row]:
    """Rows `policy.*`, for the networks in `benchmark.networks`."""
    find_cpu()  # now, as the operations are counted at the end
    seconds = config.benchmark.seconds
    runs: dict[str, Callable[[], float]] = {"matrix_product": partial(matrix_product, config.policy.dtype)}
    if "code" in SOURCES:  # of contrib
        runs["program"] = partial(run_program, config, seconds)
    trainings: dict[str, Training] = {}
    acting: dict[str, dict[int, float]] = {}
    for network in config.benchmark.networks:
        training = Training(config, network, rewarded=True)
        acting[network], trainings[network] = training.act(seconds / 4), training
        runs[f"end_to_end.{network}"] = partial(training.run, STRETCH * seconds)
        unrewarded = Training(config, network, rewarded=False)
        unrewarded.act(0.0)  # compiles, as for the other one
        unrewarded.run(0.0)
        runs[f"end_to_end_no_reward.{network}"] = partial(unrewarded.run, STRETCH * seconds)
    for network, training in trainings.items():
        training.run(0.0)  # which leaves a batch to measure with
        runs[f"learner.{network}"] = partial(training.learn, seconds)
        runs[f"inference.{network}"] = partial(training.infer, seconds)
    if importlib.util.find_spec("torch") and "reference" in trainings and not is_accelerated():
        runs["torch_learner"] = partial(torch_learner, config.policy.batch_size, config.policy.rollout_length)
    rounds = take_turns(runs, config.benchmark.repeats)
    rates, rows = medians(rounds), Rows()

    product = rates["matrix_product"]
    rows.add("policy.matrix_product", product, "GFLOP/s", dtype=config.policy.dtype)
    if "program" in rates:
        rows.add("policy.program", rates["program"], "steps/s", terms=len(TERMS))
    for network, training in trainings.items():

        def add(name: str, value: float, unit: str, network: str = network, **sizes: Any) -> None:
            rows.add(f"policy.{name}.{network}", value, unit, **sizes)

        whole, learner = rates[f"end_to_end.{network}"], rates[f"learner.{network}"]
        add("end_to_end", whole, "steps/s", **training.sizes(), reward="on")
        add("end_to_end_no_reward", rates[f"end_to_end_no_reward.{network}"], "steps/s", reward="off")
        cost = [1 - on / off for on, off in zip(rounds[f"end_to_end.{network}"],
                                                rounds[f"end_to_end_no_reward.{network}"], strict=True)]  # fmt: skip
        add("reward_cost", 100 * statistics.median(cost), "%", least=f"{min(cost):.1%}", most=f"{max(cost):.1%}")
        add("reward_lookup", training.lookup(seconds), "steps/s", messages=len(training.table))
        add("program_share", 100 * whole / rates["program"], "%", of="the time of a step from end to end")
        add("learner", learner, "steps/s", batch=config.policy.batch_size)
        add("inference", rates[f"inference.{network}"], "steps/s", games=training.group_size)
        for games, rate in acting[network].items():
            add(f"inference_of.{games}", rate, "steps/s", ms_per_call=round(1e3 * games / rate, 3))
        act, learn = training.flops()
        add("flop_per_step", (act + learn) / 1e6, "MFLOP", acting=round(act / 1e6, 1))
        add("learner_flops", learn * learner / 1e9, "GFLOP/s")
        most = product * 1e9 / (act + learn)
        add("share_of_limit", 100 * whole / most, "%", limit=f"{most:,.0f} steps/s")
        add("bytes_per_step", training.bytes_per_step, "B")
        for activity, seconds_per_step in training.spent.items():
            share = 100 * seconds_per_step * training.rate
            add(f"time.{activity}", share, "%", us_per_step=round(1e6 * seconds_per_step, 2))
        if needed := training.update_memory():
            memory = describe_memory(jax.devices()[0])
            limit = f"{memory.limit / 2**30:,.1f} GiB" if memory else "unknown"
            add("update_memory", needed / 2**30, "GiB", limit=limit)
        if is_accelerated():
            with gpu_busy(rows, f"policy.learner.{network}"):
                training.learn(seconds)
    if "torch_learner" in rates:
        rows.add("policy.torch_learner", rates["torch_learner"], "steps/s", batch=config.policy.batch_size)
        rows.compare("policy.learner_over_torch", rounds["learner.reference"], rounds["torch_learner"], digits=2)
    return rows


def measure_options(config: ConfigDict, workdir: Path) -> list[Row]:
    """Rows `options.*`: the same training with three options over rewards and their controller, and without them.

    A row of a rollout is a step of a game, or a decision, in which the game waits. Rows per second with options over
    those without tell what the wider network, the columns of returns and the waiting cost.
    """
    seconds, rows = config.benchmark.seconds, Rows()

    def rows_per_s(training: Training, run: Callable[[float], float], seconds: float) -> float:
        return run(seconds) / training.played

    for network in config.benchmark.networks:
        trainings = {
            "with": Training(config, network, False, OPTIONS, CONTROLLER),
            "without": Training(config, network, False),
        }
        runs: dict[str, Callable[[], float]] = {}
        for name, training in trainings.items():
            training.act(0.0)  # compiles
            training.run(0.0)  # the same, and leaves a batch to measure with
            runs[f"end_to_end.{name}"] = partial(rows_per_s, training, training.run, STRETCH * seconds)
            runs[f"learner.{name}"] = partial(rows_per_s, training, training.learn, seconds)
        rounds = take_turns(runs, config.benchmark.repeats)
        rates, played = medians(rounds), trainings["with"].played
        whole = rates["end_to_end.with"]
        rows.add(f"options.end_to_end.{network}", whole * played, "steps/s", **trainings["with"].sizes())
        rows.add(f"options.decisions.{network}", 100 * (1 - played), "%", rows_per_s=round(whole))
        for part in ("end_to_end", "learner"):
            name = f"options.{part}_rows_over_without.{network}"
            rows.compare(name, rounds[f"{part}.with"], rounds[f"{part}.without"], digits=2)
    return rows


class Training:
    """One network with its learner, compiled once."""

    def __init__(
        self, config: ConfigDict, network: str, rewarded: bool, options: str = "", controller: str = "",
        init_from: str = "",
    ):  # fmt: skip
        """Builds it as train_policy does; `rewarded` by an untrained reward, which costs as much as a trained one.

        `init_from`: a policy whose parameters are played and learn from then on.
        """
        self._config = config = config.copy_and_resolve_references()
        section = config.policy
        section.network, section.warmup_steps = network, 0
        if options:
            config.options.rewards, config.options.controller = options, controller
        section.init_from = init_from
        sources = untrained_sources(config) if rewarded else RewardSources()
        self._typed = typed = train_policy.STAGE.view(config.to_dict())
        parts = assemble(typed, Path(), lambda setting: sources, hosts=1)
        if init_from:
            params, frozen = read_initial(typed, parts.learner.model)
            model = parts.learner.model._replace(params=params, frozen=frozen)
            parts = parts._replace(learner=parts.learner._replace(model=model))
        self._parts, self._learner, self._model = parts, parts.learner, parts.learner.model
        # A copy, because updates give their state away, and the player still uses these parameters.
        params = jax.tree.map(jnp.copy, self._model.params)
        self._state, self._frozen = self._learner.begin(params)
        self._player = parts.games.player(self._model, seed=0)
        self.group_size = section.games_per_worker // section.groups
        self._batch: Any = None
        self.rate = 0.0  # steps per second of the last run from end to end
        self.played = 1.0  # share of its rows that are steps of games; the others are decisions of a controller
        self.spent: dict[str, float] = {}  # in that run, seconds per step of each activity; of workers, on average

    def run(self, seconds: float, updates: int = 0, trace: Trace | None = None) -> float:
        """Steps per second from end to end, after WARMUP_BATCHES batches; for `seconds`, and at least `updates`."""
        games, learner, player = self._parts.games, self._learner, self._player
        trace = trace or Trace(Profile(), Path())
        with games.open(player, learner.sources.observations) as pool:
            self.bytes_per_step = bytes_per_step(pool.layout)
            turns = takes_turns(self._typed.policy)
            source = games.loop(pool, player, learner)
            try:
                number, steps, start, pending = 0, 0, 0.0, None
                before: dict[str, float] = {}
                while number < WARMUP_BATCHES + max(updates, 1) or time.perf_counter() - start < seconds:
                    batch = source.get(1.0)
                    if batch is None:
                        continue
                    self._batch = batch
                    with trace.step(number):
                        self._state, metrics = learner.update(self._state, self._frozen, batch.arrays.rollouts)
                    with source.timers("update"):  # as in training, of the update before: the device goes on meanwhile
                        player.swap(player.prepare(local_copy(self._state.params), number), wait=turns)
                        jax.block_until_ready(pending)
                    pending = metrics
                    number += 1
                    if number == WARMUP_BATCHES:
                        start, before = time.perf_counter(), time_spent(pool, source)
                    elif number > WARMUP_BATCHES:
                        steps += batch.steps
                jax.block_until_ready(pending)
                self.rate = steps / max(time.perf_counter() - start, 1e-9)
                self.played = steps / ((number - WARMUP_BATCHES) * self._config.policy.batch_size)
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
        found, counts = {}, {min(padded_size(games, self.group_size), total) for games in groups}
        for count in sorted(counts):
            shapes = {name: (count, *specs[name].shape) for name in self._player.reads}
            observations = {name: np.zeros(shape, specs[name].dtype) for name, shape in shapes.items()}
            found[count] = self._act_on(observations, np.ones(count, bool), seconds)
        return found

    def infer(self, seconds: float) -> float:
        """Steps per second of the policy alone, for one group of games at a time."""
        return self._act_on(*self._moment(), seconds)

    def _act_on(self, observations: dict[str, np.ndarray], first: np.ndarray, seconds: float) -> float:
        games = np.arange(len(first))

        def act() -> int:
            self._player(observations, first, games)
            return len(first)

        return rate_of(act, seconds, calls=3)

    def learn(self, seconds: float) -> float:
        """Steps per second of the learner alone, on the last batch."""

        def learn() -> int:
            self._state, metrics = self._learner.update(self._state, self._frozen, self._batch.arrays.rollouts)
            jax.block_until_ready(metrics)
            return self._batch.steps

        return rate_of(learn, seconds)

    @property
    def table(self) -> Any:
        return self._learner.sources.learnt.table

    def lookup(self, seconds: float) -> float:
        """Steps per second of the learnt reward alone, when nearly all messages are known."""
        messages = np.asarray(self._batch.arrays.rollouts.observations["message"])[1:]

        def look() -> int:
            self.table(messages)
            return self._batch.steps

        return rate_of(look, seconds)

    def flops(self) -> tuple[float, float]:
        """Operations per step of acting and of learning, as the compiler counts them."""
        observations, first = self._moment()
        params, frozen = weights = self._model.params, self._model.frozen
        core = np.zeros((self.group_size, self._model.core_size), np.float32)
        rollout = {key: array[None] for key, array in observations.items()}, first[None], core  # one step: no loop

        def learn(params: Any, *inputs: Any) -> jax.Array:
            logits, values = self._model.unroll(params, frozen, *inputs)
            return logits.sum() + values.sum()

        prepared = jax.jit(self._model.prepare)(*weights)
        acting = count_flops(self._model.step, *weights, observations, first, core, prepared)
        learning = count_flops(jax.grad(learn), params, *rollout)
        return acting / self.group_size, learning / self.group_size

    def update_memory(self) -> int:
        """Bytes that an update takes beside its arguments; 0: not known."""
        update = self._learner.update
        return needed_bytes(update.lower(self._state, self._frozen, self._batch.arrays.rollouts).compile())

    def sizes(self) -> dict[str, Any]:
        """Numbers of games and workers, sizes of batch and rollout, and the device, for the rows."""
        section = self._config.policy
        return {
            "games": max(section.num_workers, 1) * section.games_per_worker,
            "workers": section.num_workers,
            "batch": section.batch_size,
            "rollout": section.rollout_length,
            "device": f"{self._learner.mesh.size} {jax.devices()[0].device_kind}",
        }

    def _moment(self) -> tuple[dict[str, np.ndarray], np.ndarray]:
        rollouts, chosen = self._batch.arrays.rollouts, slice(self.group_size)
        observations = {key: np.asarray(array)[0, chosen] for key, array in rollouts.observations.items()}
        return observations, np.asarray(rollouts.first)[0, chosen]


def time_spent(pool: ActorPool, source: RolloutLoop) -> dict[str, float]:
    """Seconds of each activity so far; `workers_wait` is the mean of all workers."""
    return pool.timers.seconds | source.timers.seconds | {"workers_wait": pool.worker_wait_s / pool.layout.num_workers}


def torch_learner(batch_size: int, rollout: int) -> float:
    """Steps per second of the reference network in PyTorch: forward, backward and Adam, on a picture that is there."""
    import torch
    from torch import nn

    rows = batch_size // rollout
    image = nn.Sequential(
        nn.Conv2d(3, 32, 8, 4), nn.ELU(), nn.Conv2d(32, 64, 4, 2), nn.ELU(), nn.Conv2d(64, 128, 3, 2), nn.ELU(),
        nn.Flatten(), nn.Linear(1152, 512), nn.ELU(),
    )  # fmt: skip
    vector = nn.Sequential(nn.Linear(27, 128), nn.ELU(), nn.Linear(128, 128), nn.ELU())
    message = nn.Sequential(nn.Linear(256, 128), nn.ELU(), nn.Linear(128, 128), nn.ELU())
    core, heads = nn.GRU(795, 512), nn.Linear(512, 24)
    optimizer = torch.optim.Adam(nn.ModuleList([image, vector, message, core, heads]).parameters(), lr=1e-4)
    pixels, line, text = torch.rand(batch_size, 3, 72, 72), torch.rand(batch_size, 27), torch.rand(batch_size, 256)
    start = time.perf_counter()
    features = torch.cat([image(pixels), vector(line), line, message(text)], -1)
    loss = heads(core(features.reshape(rollout, rows, -1))[0]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return batch_size / (time.perf_counter() - start)
