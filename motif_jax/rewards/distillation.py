"""Random network distillation (Burda et al. 2018, arXiv 1810.12894): novelty as the error of a prediction.

    x = clip((features - mean) / sqrt(variance), -5, 5)      running mean and variance of the features
    error = mean((predictor(x) - target(x))^2)               the target is a random network that never changes
    bonus = error / sqrt(variance of all errors)

The predictor learns the target's outputs where the agent has been, so the bonus falls there. As in the paper, features
and bonus are divided by running standard deviations. Unlike in the paper, the bonus uses the deviation of errors, not
of their discounted sums, and the target is a smaller network that reads features, not pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from motif_jax.devices.mesh import total
from motif_jax.networks.novelty import NoveltyNetwork, features, random_cells, size_of
from motif_jax.rewards.moments import DeviceMoments, add_values, no_moments
from motif_jax.structs import ArraySpec

LIMIT = 5.0  # maximum absolute value of normalised features
FLOOR = 1e-8  # added to variances
Specs = Mapping[str, ArraySpec]


class Fixed(NamedTuple):
    """Constants of a run."""

    cells: jax.Array  # [CELLS, CELL_SIZE]
    target: Any  # parameters of the target network


class NoveltyState(NamedTuple):
    """The state of novelty and of its training."""

    fixed: Fixed
    params: Any  # parameters of the predictor
    optimizer: Any
    features: DeviceMoments  # [D]
    errors: DeviceMoments  # []
    updates: jax.Array  # number of updates, int32


class Novelty(NamedTuple):
    """The pure functions, for one set of observations and sizes."""

    init: Callable[[jax.Array], NoveltyState]  # from a random key
    bonus: Callable[[NoveltyState, Mapping[str, jax.Array]], jax.Array]  # observations [N, ...] -> [N]
    update: Callable[..., tuple[NoveltyState, dict[str, jax.Array]]]  # (state, observations [T + 1, B, ...])


def make_novelty(specs: Specs, hidden: int, outputs: int, learning_rate: float) -> Novelty:
    """Makes the functions; `update` is for `mesh.map_update(update, mesh, batch_axis=1)`."""
    inputs = sum(size_of(name, spec) for name, spec in specs.items())
    optimizer = optax.adam(learning_rate)
    target_sizes, predictor_sizes = (inputs, hidden, outputs), (inputs, hidden, hidden, outputs)
    target_graph, predictor_graph = (
        nnx.split(nnx.eval_shape(lambda sizes=sizes: NoveltyNetwork(*sizes, rngs=nnx.Rngs(0))))[0]
        for sizes in (target_sizes, predictor_sizes)
    )

    def init(key: jax.Array) -> NoveltyState:
        keys = jax.random.split(key, 3)
        target, params = (
            nnx.split(NoveltyNetwork(*sizes, rngs=nnx.Rngs(key)))[1]
            for sizes, key in ((target_sizes, keys[0]), (predictor_sizes, keys[1]))
        )
        fixed = Fixed(random_cells(keys[2]), target)
        seen = no_moments((inputs,)), no_moments()
        return NoveltyState(fixed, params, optimizer.init(params), *seen, jnp.zeros((), jnp.int32))

    def errors_of(params: Any, fixed: Fixed, x: jax.Array) -> jax.Array:
        wanted = nnx.merge(target_graph, fixed.target)(x)
        return ((nnx.merge(predictor_graph, params)(x) - wanted) ** 2).mean(-1)  # [N]

    def normalise(seen: DeviceMoments, x: jax.Array) -> jax.Array:
        return jnp.clip((x - seen.mean) * jax.lax.rsqrt(seen.variance + FLOOR), -LIMIT, LIMIT)

    def bonus(state: NoveltyState, observations: Mapping[str, jax.Array]) -> jax.Array:
        x = normalise(state.features, features(specs, state.fixed.cells, observations))
        found = errors_of(state.params, state.fixed, x) * jax.lax.rsqrt(state.errors.variance + FLOOR)
        return jnp.where(state.updates > 0, found, 0.0)  # there are no moments before the first update

    def update(state: NoveltyState, observations: Mapping[str, jax.Array]) -> tuple[NoveltyState, dict[str, jax.Array]]:
        flat = {name: observations[name][1:].reshape(-1, *spec.shape) for name, spec in specs.items()}
        with jax.named_scope("features"):
            x = features(specs, state.fixed.cells, flat)
            seen = add_values(state.features, x)
            x = normalise(seen, x)

        def loss_of(params: Any) -> tuple[jax.Array, jax.Array]:
            errors = errors_of(params, state.fixed, x)
            return errors.sum() / total(jnp.float32(len(errors))), errors

        with jax.named_scope("predictor"):
            (loss, errors), gradients = jax.value_and_grad(loss_of, has_aux=True)(state.params)
            loss, gradients = total((loss, gradients))
            directions, optimizer_state = optimizer.update(gradients, state.optimizer, state.params)
            params = optax.apply_updates(state.params, directions)
        new = NoveltyState(
            state.fixed, params, optimizer_state, seen, add_values(state.errors, errors), state.updates + 1
        )
        finite = jnp.stack([jnp.isfinite(leaf).all() for leaf in (loss, *jax.tree.leaves(params))]).all()
        kept = jax.tree.map(lambda new, old: jnp.where(finite, new, old), new, state)
        return kept, {"loss": loss, "finite": finite}

    return Novelty(init, bonus, update)
