"""Random network distillation (Burda et al. 2018, arXiv 1810.12894): novelty as the error of a prediction.

    x = clip((features - mean) / sqrt(variance), -5, 5)      running mean and variance of the features
    error = mean((predictor(x) - target(x))^2)               the target is a random network that never changes
    bonus = error / sqrt(variance of all errors)

The predictor learns the target's outputs where the agent has been, so the bonus falls there. As in the paper, features
and bonus are divided by running standard deviations. Unlike in the paper, the bonus uses the deviation of errors, not
of their discounted sums, and the target is a smaller network that reads features, not pixels.

The source reads the policy's observations. A step's reward is the novelty of the next observation; the last step of an
episode is worth 0, because the next frame belongs to another episode. The predictor learns from every batch once, after
the policy, on the learner's devices. Rewards are computed on one of these from the last snapshot.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh

from motif_jax.devices.mesh import local_copy, map_update, replicate, total
from motif_jax.devices.parameters import leaves_by_path, rebuild, sum_of_arrays
from motif_jax.envs.world import select_specs, waited
from motif_jax.networks.images import elu
from motif_jax.networks.kinds import from_record, to_record
from motif_jax.networks.policy import Layers, scale, trigrams
from motif_jax.rewards.preference import in_chunks
from motif_jax.rewards.source import Arrays, Facts, RewardSource, Setting
from motif_jax.rewards.statistics import RunningStats
from motif_jax.structs import ArraySpec, UserError

CHUNK = 4096  # observations per call
SEED = 81  # so that its networks differ from the policy's
LIMIT = 5.0  # maximum absolute value of normalised features
FLOOR = 1e-8  # added to variances
PLACES = 256  # buckets of hashed trigrams
CELLS, CELL_SIZE = 256, 4  # kinds of cells (further kinds share their vectors), and numbers per cell
LEAST = 1e-6  # number of values that a batch without any counts as, so that nothing is divided by 0
Specs = Mapping[str, ArraySpec]


def no_stats(shape: tuple[int, ...] = ()) -> RunningStats:
    """The statistics before the first value, on the devices."""
    return RunningStats(jnp.zeros(()), jnp.zeros(shape), jnp.zeros(shape))


def add_values(stats: RunningStats, values: jax.Array, weight: jax.Array) -> RunningStats:
    """Adds the values of all devices, inside a function that `mesh.map_update` maps. [N, ...] per device

    `weight`: 1 for values that count, else 0. [N]
    """
    new = jnp.maximum(total(weight.sum()), LEAST)
    weight = weight.reshape(-1, *[1] * (values.ndim - 1))
    mean = total((weight * values).sum(0)) / new
    return stats.merge(RunningStats(new, mean, total((weight * (values - mean) ** 2).sum(0)) / new))


# Features of any observations are not trained: trigrams of texts are counted, cells of maps get fixed random vectors,
# numbers are unchanged.


def features(specs: Mapping[str, ArraySpec], cells: jax.Array, observations: Mapping[str, jax.Array]) -> jax.Array:
    """The features of N observations, concatenated in the order of `specs`. [N, D] float32"""
    parts = []
    for name, spec in specs.items():
        array = observations[name]
        if spec.kind in ("", "text") and spec.dtype == "uint8" and len(spec.shape) == 1:
            part = trigrams(array, PLACES)
        elif spec.kind != "vector" and np.dtype(spec.dtype).kind in "iu" and len(spec.shape) > 1:  # kinds of cells
            part = cells[array.astype(jnp.int32) % CELLS]
        else:
            part = scale(array) if name == "blstats" else array.astype(jnp.float32)
        parts.append(part.reshape(len(array), -1))
    return jnp.concatenate(parts, -1)


class NoveltyNetwork(Layers):
    """A multilayer perceptron with ELU after each layer except the last, and orthogonal weights of gain sqrt(2)."""

    GAIN = math.sqrt(2)

    def __call__(self, x: jax.Array) -> jax.Array:
        *hidden, last = self.linears
        for linear in hidden:
            x = elu(linear(x))
        return last(x)


class Fixed(NamedTuple):
    """The constants of a run."""

    cells: jax.Array  # [CELLS, CELL_SIZE]
    target: Any  # parameters of the target network


class NoveltyState(NamedTuple):
    """The networks and their training."""

    fixed: Fixed
    params: Any  # parameters of the predictor
    optimizer: Any
    features: RunningStats  # [D]
    errors: RunningStats  # []
    updates: jax.Array  # number of updates, int32


class Novelty:
    """Pure functions for one set of observations and sizes; `update` is for `mesh.map_update(..., batch_axis=1)`."""

    def __init__(self, specs: Specs, hidden: int, outputs: int, learning_rate: float):
        shapes = {name: jax.ShapeDtypeStruct((1, *spec.shape), spec.dtype) for name, spec in specs.items()}
        cells = jax.ShapeDtypeStruct((CELLS, CELL_SIZE), jnp.float32)
        inputs = jax.eval_shape(functools.partial(features, specs), cells, shapes).shape[-1]
        self._specs, self._optimizer = specs, optax.adam(learning_rate)
        self._sizes = (inputs, hidden, outputs), (inputs, hidden, hidden, outputs)  # of target and predictor
        self._target, self._predictor = (
            nnx.split(nnx.eval_shape(lambda sizes=sizes: NoveltyNetwork(*sizes, rngs=nnx.Rngs(0))))[0]
            for sizes in self._sizes
        )

    def init(self, key: jax.Array) -> NoveltyState:
        *of_networks, of_cells = jax.random.split(key, 3)
        target, params = (
            nnx.split(NoveltyNetwork(*sizes, rngs=nnx.Rngs(key)))[1]
            for sizes, key in zip(self._sizes, of_networks, strict=True)
        )
        fixed = Fixed(jax.random.normal(of_cells, (CELLS, CELL_SIZE)), target)
        stats = no_stats(self._sizes[0][:1]), no_stats()
        return NoveltyState(fixed, params, self._optimizer.init(params), *stats, jnp.zeros((), jnp.int32))

    def _errors(self, params: Any, fixed: Fixed, x: jax.Array) -> jax.Array:
        target = nnx.merge(self._target, fixed.target)(x)
        return ((nnx.merge(self._predictor, params)(x) - target) ** 2).mean(-1)  # [N]

    def bonus(self, state: NoveltyState, observations: Mapping[str, jax.Array]) -> jax.Array:
        """Observations [N, ...] -> [N]"""
        x = normalise(state.features, features(self._specs, state.fixed.cells, observations))
        errors = self._errors(state.params, state.fixed, x) * jax.lax.rsqrt(state.errors.variance + FLOOR)
        return jnp.where(state.updates > 0, errors, 0.0)  # there are no statistics before the first update

    def update(self, state: NoveltyState, batch: tuple[Mapping[str, jax.Array], Any]) -> tuple[NoveltyState, Any]:
        """`batch`: observations [T + 1, B, ...], actions [T, B, ...]"""
        observations, actions = batch
        weight = jnp.float32(~waited(actions)).reshape(-1)  # a game that waits shows the same moment again
        count = total(weight.sum())
        flat = {name: observations[name][1:].reshape(-1, *spec.shape) for name, spec in self._specs.items()}
        with jax.named_scope("features"):
            x = features(self._specs, state.fixed.cells, flat)
            stats = add_values(state.features, x, weight)
            x = normalise(stats, x)

        def loss_of(params: Any) -> tuple[jax.Array, jax.Array]:
            errors = self._errors(params, state.fixed, x)
            return (weight * errors).sum() / jnp.maximum(count, 1), errors

        with jax.named_scope("predictor"):
            (loss, errors), gradients = jax.value_and_grad(loss_of, has_aux=True)(state.params)
            loss, gradients = total((loss, gradients))
            directions, optimizer_state = self._optimizer.update(gradients, state.optimizer, state.params)
            params = optax.apply_updates(state.params, directions)
        of_errors = add_values(state.errors, errors, weight)
        new = NoveltyState(state.fixed, params, optimizer_state, stats, of_errors, state.updates + 1)
        finite = jnp.stack([jnp.isfinite(leaf).all() for leaf in (loss, *jax.tree.leaves(params))]).all()
        kept = jax.tree.map(lambda new, old: jnp.where(finite & (count > 0), new, old), new, state)
        return kept, {"loss": loss, "finite": finite}


def normalise(stats: RunningStats, x: jax.Array) -> jax.Array:
    """Scales features by their running statistics, within LIMIT. [N, D]"""
    return jnp.clip((x - stats.mean) * jax.lax.rsqrt(stats.variance + FLOOR), -LIMIT, LIMIT)


class RandomDistillation(RewardSource):
    """The prediction error of random network distillation, normalised."""

    def __init__(self, facts: Facts, key: jax.Array, mesh: Mesh | None):
        """Makes new networks.

        `facts`: `observations` (their specs, as `kinds.to_record` writes them), `hidden`, `outputs`, `learning_rate`.
        `mesh`: needed for `advance`.
        """
        self._facts, self._mesh = facts, mesh
        specs = dict(sorted(from_record(facts["observations"]).items()))
        self.observations = tuple(specs)
        novelty = Novelty(specs, facts["hidden"], facts["outputs"], facts["learning_rate"])
        self._bonus = jax.jit(novelty.bonus)
        self._update = map_update(novelty.update, mesh, batch_axis=1) if mesh is not None else None
        self._metrics: dict[str, jax.Array] = {}  # metrics of the last update
        self._begin(jax.jit(novelty.init)(key))

    @classmethod
    def make(cls, setting: Setting) -> RandomDistillation:
        section = vars(setting.config.policy.rnd)
        facts: Facts = {name: section[name] for name in ("hidden", "outputs", "learning_rate")}
        facts["observations"] = to_record(select_specs(setting.specs, setting.reads))
        return cls(facts, jax.random.fold_in(jax.random.key(setting.config.seed), SEED), setting.mesh)

    @classmethod
    def rebuild(cls, arrays: Any, facts: Facts) -> RandomDistillation:
        source = cls(facts, jax.random.key(0), None)
        source.restore(arrays, facts)
        return source

    def _begin(self, state: NoveltyState) -> None:
        """Takes a state, and makes the snapshot."""
        if self._mesh is not None:
            self._state = replicate(state, self._mesh)
            state = local_copy(self._state)  # because updates donate the memory of the state
        self._snapshot = state

    def rewards(self, rollouts: Arrays) -> np.ndarray:
        snapshot = self._snapshot  # the learner's thread may swap it meanwhile
        ended = rollouts["terminated"] | rollouts["truncated"]  # [T, B]
        seen = {name: rollouts[name][1:].reshape(-1, *rollouts[name].shape[2:]) for name in self.observations}
        bonus = in_chunks(
            lambda rows: self._bonus(snapshot, {name: array[rows] for name, array in seen.items()}), ended.size, CHUNK
        )
        return np.where(ended, np.float32(0), bonus.reshape(ended.shape))

    def advance(self, batch: Any, hosts: Any) -> None:
        assert self._update is not None
        if self._metrics and not self._metrics["finite"]:  # of the last update, so this does not wait
            updates = f"{int(self._snapshot.updates):,} updates"
            raise UserError(
                f"the loss of random network distillation is not finite after {updates}: begin another --workdir, with "
                "a smaller --config.policy.rnd.learning_rate"
            )
        rollouts = batch.arrays.rollouts
        self._state, self._metrics = self._update(self._state, (rollouts.observations, rollouts.action))
        self._snapshot = local_copy(self._state)

    def arrays(self) -> NoveltyState:
        return self._snapshot

    def facts(self) -> Facts:
        return self._facts

    def restore(self, arrays: Any, facts: Facts) -> None:
        self._begin(rebuild(self._snapshot, leaves_by_path(arrays), Path("sources/rnd"), "--config.policy.rnd"))

    def figures(self) -> dict[str, float]:
        state = self._snapshot
        loss = {"rnd_loss": float(self._metrics["loss"])} if self._metrics else {}
        errors = {"rnd_error_mean": float(state.errors.mean), "rnd_error_std": float(state.errors.variance) ** 0.5}
        return {"rnd_updates": float(state.updates)} | loss | errors

    def about(self) -> Facts:
        return {"updates": int(self._snapshot.updates), "checksum": sum_of_arrays(self._snapshot)}
