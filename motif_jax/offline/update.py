"""One update of an offline algorithm, for `mesh.map_update`; and its losses without learning.

The state holds the policy and the values that a recipe learns, and the targets, slowly following copies. A given policy
is a separate argument, so that it is not compiled into the program as a constant.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from motif_jax.devices.mesh import total
from motif_jax.offline.batch import Sums, TranscriptBatch, Weights
from motif_jax.offline.offline_settings import OfflineSettings
from motif_jax.offline.recipes import Recipe
from motif_jax.offline.terms import LEARNT, STEPS, TOKENS, count, divisor_of, sum_terms, weights_of
from motif_jax.offline.values import ModelFunctions, Params, new_condition, new_values


class OfflineState(NamedTuple):
    """Everything that an update changes."""

    learnt: Params  # see `terms.Weights`
    target: Params
    optimizer: Any
    step: jax.Array  # updates done. int32


def make_optimizer(settings: OfflineSettings) -> optax.GradientTransformation:
    """Makes AdamW with gradient clipping, linear warmup and cosine decay."""
    rate, end, warmup = settings.learning_rate, settings.learning_rate_end, settings.warmup_steps
    schedule: Any = optax.constant_schedule(rate)
    if settings.total_steps and end != 1.0:
        schedule = optax.cosine_decay_schedule(rate, max(settings.total_steps - warmup, 1), end)
    if warmup:
        schedule = optax.join_schedules([optax.linear_schedule(0.0, rate, warmup), schedule], [warmup])
    adam = optax.adamw(schedule, settings.adam_b1, settings.adam_b2, settings.adam_eps,
                       weight_decay=settings.weight_decay)  # fmt: skip
    if not settings.max_gradient_norm:
        return adam
    return optax.chain(optax.clip_by_global_norm(settings.max_gradient_norm), adam)


def init_state(
    key: jax.Array,
    language: ModelFunctions,
    recipe: Recipe,
    settings: OfflineSettings,
    policy: Params,
    trunk: Params,
    bias: float = 0.0,
) -> OfflineState:  # fmt: skip
    """Makes the state before the first update.

    `policy`: in the state only if the recipe learns it. `bias`: initial output of the values, about the mean return.
    """
    learnt: dict[str, Any] = {}
    target: dict[str, Any] = {}
    if recipe.learns_policy:
        learnt["policy"] = policy
    if recipe.conditioned:
        learnt["condition"] = new_condition(language.width)
    if recipe.has_values:
        learnt |= new_values(key, language, recipe, bias, settings.double_q)
        target["q"] = learnt["q"]
    if recipe.has_trunk:
        learnt["trunk"] = target["trunk"] = trunk
    learnt, target = jax.tree.map(jnp.array, (learnt, target))  # copies, because the update donates its state
    return OfflineState(learnt, target, make_optimizer(settings).init(learnt), jnp.zeros((), jnp.int32))


class Objective(NamedTuple):
    """The loss that an update minimises, as sums over a batch and their divisors."""

    sums: Callable[[Weights, TranscriptBatch], Sums]  # terms of the loss and metrics, summed over a batch
    counts: Callable[[TranscriptBatch], Sums]  # divisors of the sums over all devices and parts
    divisor_of: Callable[[str], str]  # name of a sum -> name of its count
    weights: dict[str, float]  # of terms in the loss


def make_offline_update(
    language: ModelFunctions,
    recipe: Recipe,
    settings: OfflineSettings,
    merge: Callable[[Weights], Weights] = lambda weights: weights,
) -> Callable[..., Any]:
    """Makes the training step of a recipe that learns from transcripts; see `make_update`.

    `merge`: adds learnt low-rank additions to the model's weights.
    """
    return make_update(
        Objective(
            lambda weights, batch: sum_terms(language, recipe, settings, merge(weights), batch),
            lambda batch: count(recipe, batch),
            lambda name: divisor_of(name, recipe, settings),
            {name: weight for name, (weight, _) in weights_of(recipe, settings).items()},
        ),
        settings,
    )


def make_update(objective: Objective, settings: OfflineSettings) -> Callable[..., Any]:
    """Makes the training step, for `mesh.map_update(update, mesh, batch_axis=0, num_constants=1)`.

    Returns:
      `update(state, given, batch) -> (state, metrics)`. Metrics are means over the decisions of the whole batch. If
      the loss or a gradient is not finite, only `step` changes, and `metrics["finite"]` is 0.
    """
    optimizer, parts = make_optimizer(settings), settings.num_parts

    def weighted(means: Sums) -> jax.Array:
        return jnp.asarray(sum(weight * means[name] for name, weight in objective.weights.items()))

    def loss_of(
        learnt: Params, target: Params, given: Params, batch: TranscriptBatch, counts: Sums
    ) -> tuple[jax.Array, Sums]:
        sums = objective.sums(Weights(learnt, target, given), batch)
        means = {name: value / counts[objective.divisor_of(name)] for name, value in sums.items()}
        return weighted(means), means

    def update(state: OfflineState, given: Params, batch: TranscriptBatch) -> tuple[OfflineState, Sums]:
        counts = {name: jnp.maximum(value, 1.0) for name, value in total(objective.counts(batch)).items()}

        def part_of(part: TranscriptBatch) -> tuple[Params, Sums]:
            slope = jax.grad(loss_of, has_aux=True)
            return slope(state.learnt, state.target, given, part, counts)

        if parts == 1:
            gradients, means = part_of(batch)
        else:
            split = jax.tree.map(lambda array: array.reshape(parts, -1, *array.shape[1:]), batch)
            empty = jax.tree.map(
                lambda leaf: jnp.zeros(leaf.shape, leaf.dtype),
                jax.eval_shape(part_of, jax.tree.map(lambda array: array[0], split)),
            )

            def add(sums: Any, part: TranscriptBatch) -> tuple[Any, None]:
                return jax.tree.map(jnp.add, sums, part_of(part)), None

            (gradients, means), _ = jax.lax.scan(add, empty, split)
        gradients, means = total((gradients, means))
        loss = weighted(means)
        changes, optimizer_state = optimizer.update(gradients, state.optimizer, state.learnt)
        learnt = optax.apply_updates(state.learnt, changes)
        norms = {"gradient_norm": optax.tree.norm(gradients), "update_norm": optax.tree.norm(changes)}
        finite = jnp.isfinite(jnp.stack([loss, *norms.values()])).all()
        new = OfflineState(learnt, follow(state.target, learnt, state.step + 1, settings), optimizer_state, state.step)
        new = jax.tree.map(lambda new, old: jnp.where(finite, new, old), new, state)
        metrics = means | norms | {"loss": loss, "finite": finite}
        return new._replace(step=state.step + 1), {name: jnp.float32(value) for name, value in metrics.items()}

    return update


def follow(target: Params, learnt: Params, step: jax.Array, settings: OfflineSettings) -> Params:
    """Moves the targets towards the learnt parameters by Polyak averaging, or copies them at some steps."""
    source = {name: learnt[name] for name in target}
    if settings.hard_update_every:
        copies = step % settings.hard_update_every == 0
        return jax.tree.map(lambda slow, fast: jnp.where(copies, fast, slow), target, source)
    share = settings.polyak
    return jax.tree.map(lambda slow, fast: (1 - share) * slow + share * fast, target, source)


def make_offline_measure(
    language: ModelFunctions,
    recipe: Recipe,
    settings: OfflineSettings,
    merge: Callable[[Weights], Weights] = lambda weights: weights,
) -> Callable[..., Any]:
    """Makes a function that evaluates losses, for `mesh.map_update(measure, ..., num_constants=2)`.

    Returns:
      `measure(sums, state, given, batch) -> sums`: adds the batch's sums and counts to those of earlier batches.
    """

    def measure(sums: Sums, state: OfflineState, given: Params, batch: TranscriptBatch) -> Sums:
        weights = merge(Weights(state.learnt, state.target, given))
        added = sum_terms(language, recipe, settings, weights, batch) | count(recipe, batch)
        return jax.tree.map(jnp.add, sums, total({name: jnp.float32(value) for name, value in added.items()}))

    return measure


def zero_sums(recipe: Recipe, settings: OfflineSettings) -> Sums:
    """Returns the sums before the first batch."""
    names = [*weights_of(recipe, settings), LEARNT, TOKENS]
    if recipe.learns_policy:
        names.append("accuracy")
    if recipe.has_values:
        names += [STEPS, "q_mean"]
    if recipe.has_trunk:
        names += ["value_mean", "target_mean", "advantage_mean", "positive_advantage"]
    return {name: jnp.zeros(()) for name in names}


def means_of(sums: dict[str, float], recipe: Recipe, settings: OfflineSettings) -> dict[str, float]:
    """Returns the means and the loss from sums over any number of batches."""
    counts = {name: sums[name] for name in (TOKENS, LEARNT, STEPS) if name in sums}
    means = {
        name: value / max(counts[divisor_of(name, recipe, settings)], 1.0)
        for name, value in sums.items()
        if name not in counts
    }
    means["loss"] = sum(weight * means[name] for name, (weight, _) in weights_of(recipe, settings).items())
    return means
