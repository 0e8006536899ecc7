"""Measures how fast a policy is trained: steps per second end to end and of single parts, and the share of the limit.

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

from motif_jax.captions import WIDTH
from motif_jax.host_copies import local_copy
from motif_jax.learner.update import Constants, init_state
from motif_jax.parallel import place
from motif_jax.rewards.choice import LEARNT, SOURCES
from motif_jax.rewards.learnt import Reward
from motif_jax.rewards.learnt_source import LearntSource, make_mix
from motif_jax.rewards.model import make_reward_model
from motif_jax.rewards.sources import RewardSources, Weighted
from motif_jax.rewards.statistics import LEVELS, RewardStatistics
from motif_jax.stages.benchmark.reward import OPTIONS, matrix_product
from motif_jax.stages.benchmark.rows import Row, say, take_turns
from motif_jax.stages.train_policy.acting import FreeRunning
from motif_jax.stages.train_policy.placing import make_place
from motif_jax.stages.train_policy.setup import assemble, make_player, open_pool

STRETCH = 10  # times `benchmark.seconds` for a run from end to end
WARMUP_BATCHES = 3


def measure(config: ConfigDict, workdir: Path) -> list[Row]:
    """Measures this part of the benchmark; returns its rows, each printed as soon as it is known."""
    rows: list[Row] = []

    def add(name: str, value: float, unit: str, **sizes: object) -> None:
        rows.append(say(Row(name, round(value, 3), unit, sizes)))

    seconds = config.benchmark.seconds
    runs: dict[str, Callable[[], float]] = {"matrix_product": matrix_product}
    trainings: dict[str, Training] = {}
    for network in config.benchmark.networks:
        training = Training(config, network, rewarded=True)
        trainings[network] = training
        runs[f"end_to_end.{network}"] = partial(training.run, STRETCH * seconds)
        unrewarded = Training(config, network, rewarded=False)
        runs[f"end_to_end_no_reward.{network}"] = partial(unrewarded.run, STRETCH * seconds)
    for network, training in trainings.items():
        training.run(0.0)  # which leaves a batch to measure with
        runs[f"learner.{network}"] = partial(training.learn, seconds)
        runs[f"inference.{network}"] = partial(training.infer, seconds)
    if importlib.util.find_spec("torch") and "reference" in trainings:
        runs["torch_learner"] = partial(torch_learner, config.policy.batch_size, config.policy.rollout_length)
    rounds = take_turns(runs, config.benchmark.repeats)
    median = {name: statistics.median(rates) for name, rates in rounds.items()}

    product = median["matrix_product"]
    add("policy.matrix_product", product, "GFLOP/s")
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
        act, learn = training.flops()
        add(f"policy.flop_per_step.{network}", (act + learn) / 1e6, "MFLOP", acting=round(act / 1e6, 1))
        add(f"policy.learner_flops.{network}", learn * median[f"learner.{network}"] / 1e9, "GFLOP/s")
        limit = product * 1e9 / (act + learn)
        share = 100 * median[f"end_to_end.{network}"] / limit
        add(f"policy.share_of_limit.{network}", share, "%", limit=f"{limit:,.0f} steps/s")
        add(f"policy.bytes_per_step.{network}", training.bytes_per_step, "B")
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
        reward = untaught_reward()
        learnt = LearntSource(reward, make_mix(config, reward), False)
        weighted = Weighted(LEARNT, SOURCES[LEARNT].path, section.intrinsic_coefficient, learnt)
        sources = RewardSources([weighted] if rewarded else [])
        parts = assemble(config, Path(), lambda setting: sources, hosts=1)
        self._parts, self._model, self._mesh = parts, parts.model, parts.mesh
        # A copy, because updates give their state away, and the player still uses these parameters.
        params = jax.tree.map(jnp.copy, self._model.params)
        self._state = place(init_state(params, parts.learner), self._mesh, self._model.rules)
        self._constants = Constants(place(self._model.frozen, self._mesh, self._model.rules))
        self._player = make_player(config, self._model, seed=0)
        self.group_size = section.games_per_worker // section.groups
        self._batch: Any = None

    def run(self, seconds: float) -> float:
        """Steps per second from end to end, after WARMUP_BATCHES batches."""
        parts, player = self._parts, self._player
        with open_pool(self._config, parts, player, first_episode=0) as pool:
            self.bytes_per_step = pool.layout.bytes_per_step
            source = FreeRunning(pool, player, parts.rollouts, make_place(self._model, parts.sources, self._mesh))
            try:
                number, steps, start = 0, 0, 0.0
                while number < WARMUP_BATCHES or time.perf_counter() - start < seconds:
                    batch = source.get(1.0)
                    if batch is None:
                        continue
                    self._batch = batch
                    self._state, metrics = self._parts.update(self._state, self._constants, batch.arrays.rollouts)
                    player.swap(player.prepare(local_copy(self._state.params), number), wait=False)
                    jax.block_until_ready(metrics)
                    number += 1
                    if number == WARMUP_BATCHES:
                        start = time.perf_counter()
                    elif number > WARMUP_BATCHES:
                        steps += batch.steps
                return steps / max(time.perf_counter() - start, 1e-9)
            finally:
                source.close()

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
        observations, first = self._moment()
        games, done, start = np.arange(self.group_size), 0, 0.0
        while done < 3 or time.perf_counter() - start < seconds:
            start = start or time.perf_counter()
            self._player(observations, first, games)
            done += 1
        return done * self.group_size / (time.perf_counter() - start)

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
        acting, learning = ((program.compile().cost_analysis() or {}).get("flops", 0.0) for program in programs)
        return acting / self.group_size, learning / self.group_size

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


def untaught_reward() -> Reward:
    """A reward with the default network, untrained."""
    _, params = make_reward_model(OPTIONS, 0)
    statistics = RewardStatistics(0.0, 1.0, {f"{level:.2f}": 0.0 for level in LEVELS})
    nothing = np.zeros((0, WIDTH), np.uint8), np.zeros(0, np.int32)
    return Reward(OPTIONS, params, statistics, *nothing, {})


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
    parts = nn.ModuleList([image, vector, message, core, heads])
    optimizer = torch.optim.Adam(parts.parameters(), lr=1e-4)
    pixels, line, text = torch.rand(batch_size, 3, 72, 72), torch.rand(batch_size, 27), torch.rand(batch_size, 256)
    start = time.perf_counter()
    features = torch.cat([image(pixels), vector(line), line, message(text)], -1)
    loss = heads(core(features.reshape(rollout, rows, -1))[0]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return batch_size / (time.perf_counter() - start)
