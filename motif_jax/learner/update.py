"""One update: rollouts in, better parameters out. Asynchronous PPO with V-trace (APPO) as in sample-factory, or IMPALA.

The loss is a sum of terms, means over the valid samples of all devices: `losses.sum_of_terms`.

APPO: V-trace's rho is the clamped ratio, its advantages are normalised. A sample is valid if the policy that acted was
less than `max_policy_lag` updates old when the update began.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import optax

from motif_jax.learner import losses
from motif_jax.learner.settings import CHOICES, Settings
from motif_jax.learner.vtrace import next_values, vtrace
from motif_jax.parallel import total

Metrics = dict[str, jax.Array]
# (params, frozen, observations [T+1, B, ...], first [T+1, B], core [B, H]) -> (logits [T+1, B, A], values [T+1, B])
Unroll = Callable[[Any, Any, dict[str, jax.Array], jax.Array, jax.Array], tuple[jax.Array, jax.Array]]


class Rollouts(NamedTuple):
    """T steps of B games. The batch is axis 1 everywhere, so that it can be cut there."""

    observations: dict[str, jax.Array]  # what the policy reads. [T + 1, B, ...]
    first: jax.Array  # the observation is an episode's first. [T + 1, B] bool
    core: jax.Array  # recurrent state before the first step. [1, B, H]; H = 0 for a policy without one
    action: jax.Array  # [T, B] int32
    logits: jax.Array  # of the policy that acted. [T, B, A] float32
    value: jax.Array  # its values. [T, B]
    version: jax.Array  # which policy acted: updates it had seen. [T, B] int32
    reward: jax.Array  # of the game, raw. [T, B]
    terminated: jax.Array  # [T, B] bool
    truncated: jax.Array  # [T, B] bool
    moments: dict[str, jax.Array]  # what the intrinsic reward is made of; may be empty. [T, B, ...]


class Rewards(NamedTuple):
    """The reward that is learned from (`total`), and its two sources. [T, B] each"""

    total: jax.Array
    extrinsic: jax.Array
    intrinsic: jax.Array


class Samples(NamedTuple):
    """Rollouts with shaped rewards, from which minibatches are cut. Batch on axis 1."""

    rollouts: Rollouts
    reward: jax.Array  # [T, B]
    valid: jax.Array  # [T, B] bool


class Constants(NamedTuple):
    """What an update reads and does not change, beside the rollouts."""

    frozen: Any = ()  # parameters of the network that are not trained
    rewards: Any = None  # what `shape_rewards` needs


ShapeRewards = Callable[[Any, Rollouts], Rewards]  # (constants.rewards, rollouts)


class LearnerState(NamedTuple):
    """Everything that an update changes."""

    params: Any
    optimizer: Any
    version: jax.Array  # updates done. int32


def make_optimizer(settings: Settings) -> optax.GradientTransformation:
    """Gradient clipping and Adam's directions; `step` applies the learning rate, as it depends on the version."""
    adam = optax.scale_by_adam(settings.adam_b1, settings.adam_b2, settings.adam_eps)
    return optax.chain(optax.clip_by_global_norm(settings.max_gradient_norm), adam)


def init_state(params: Any, settings: Settings) -> LearnerState:
    """The learner's state before the first update."""
    return LearnerState(params, make_optimizer(settings).init(params), jnp.zeros((), jnp.int32))


def annealed(start: float, end: float, version: jax.Array, total_updates: int) -> jax.Array:
    """Interpolates linearly from start to end over `total_updates`; start if that is 0.

    If start and end are equal, the compiled program does not depend on `total_updates`: it serves runs of any length.
    """
    if start == end:
        total_updates = min(total_updates, 1)
    progress = jnp.minimum(version / total_updates, 1.0) if total_updates else 0.0
    return jnp.float32(start) + (end - start) * progress


def make_policy_update(unroll: Unroll, shape_rewards: ShapeRewards, settings: Settings) -> Callable[..., Any]:
    """The learner's step, for `parallel.map_update(update, mesh, batch_axis=1, num_constants=1)`.

    Returns:
      `update(state, constants, rollouts) -> (state, metrics)`: one pass over the rollouts per epoch, in minibatches of
      every M-th rollout. If any loss, gradient or parameter was not finite, or no sample was valid, parameters and
      optimizer stay what they were; `metrics["finite"]` reports the former. The version counts every call.
    """
    for name, choices in CHOICES.items():
        if getattr(settings, name) not in choices:
            raise ValueError(f"{name}={getattr(settings, name)!r}: give one of {', '.join(choices)}")
    optimizer = make_optimizer(settings)
    num_steps = settings.num_epochs * settings.num_minibatches
    is_appo = settings.algorithm == "appo"

    def loss_of(
        params: Any, frozen: Any, data: Samples, coefficient: jax.Array
    ) -> tuple[jax.Array, tuple[Metrics, Metrics]]:
        """This device's part of the loss; its part of the averaged metrics; metrics of all devices' samples."""
        batch, reward, valid = data
        logits, values = unroll(params, frozen, batch.observations, batch.first, batch.core[0])
        chex.assert_equal_shape([values, batch.first])
        chex.assert_equal_shape([logits[:-1], batch.logits])
        chex.assert_type([logits, values], jnp.float32)
        value = values[:-1]  # [T, B]
        log_all, log_old = jax.nn.log_softmax(logits[:-1]), jax.nn.log_softmax(batch.logits)  # [T, B, A]
        log_pi, log_mu = (jnp.take_along_axis(log, batch.action[..., None], -1)[..., 0] for log in (log_all, log_old))
        ratio = losses.clamped_ratio(log_pi, log_mu) if is_appo else jnp.exp(log_pi - log_mu)

        with jax.named_scope("vtrace"):
            ends = (batch.terminated, batch.truncated)
            v_t, discount_t, trace_t = next_values(values, reward, *ends, settings.discount, settings.bootstrap)
            clips = (settings.clip_rho, settings.clip_c)
            targets, advantages = vtrace(value, v_t, reward, discount_t, ratio, trace_t, *clips)
            used = advantages
            if settings.normalise_advantages:
                counted = jnp.ones_like(valid) if settings.normalise_over_all else valid
                used = losses.normalise(advantages, counted, settings.advantage_floor)

        with jax.named_scope("loss"):
            inputs = losses.LossInputs(log_all=log_all, log_old=log_old, log_pi=log_pi, log_mu=log_mu, ratio=ratio,
                                       value=value, old_value=batch.value, target=targets, advantage=used,
                                       weight=losses.weigh(valid))  # fmt: skip
            loss, means = losses.sum_of_terms(inputs, settings, coefficient)
        means |= losses.distances(inputs, settings.clip_ratio)
        return loss, (means, losses.spread(ratio, value, targets, advantages, valid))

    def step(state: LearnerState, frozen: Any, data: Samples) -> tuple[LearnerState, Metrics]:
        """One step of the optimizer; the version stays."""
        anneal = partial(annealed, version=state.version, total_updates=settings.total_updates)
        rate = anneal(settings.learning_rate, settings.learning_rate_end)
        coefficient = anneal(settings.exploration_coefficient, settings.exploration_end)
        gradients, (means, spread) = jax.grad(loss_of, has_aux=True)(state.params, frozen, data, coefficient)
        with jax.named_scope("optimizer"):
            gradients, means = total((gradients, means))
            directions, optimizer_state = optimizer.update(gradients, state.optimizer, state.params)
            updates = jax.tree.map(lambda direction: -rate * direction, directions)
            params = optax.apply_updates(state.params, updates)
            # the gradient's before it is clipped
            trees = {"gradient_norm": gradients, "update_norm": updates, "parameter_norm": params}
            norms = {name: optax.tree.norm(tree) for name, tree in trees.items()}
        finite = jnp.isfinite(jnp.stack([means["loss"], *norms.values()])).all()
        metrics = means | spread | norms | {"learning_rate": rate, "finite": finite}
        return LearnerState(params, optimizer_state, state.version), metrics

    def update(state: LearnerState, constants: Constants, rollouts: Rollouts) -> tuple[LearnerState, Metrics]:
        check(rollouts, settings.num_minibatches)
        with jax.named_scope("rewards"):
            rewards = shape_rewards(constants.rewards, rollouts)
            chex.assert_equal_shape([*rewards, rollouts.reward])
        lag = state.version - rollouts.version
        data = Samples(rollouts, rewards.total, lag < settings.max_policy_lag)
        if num_steps == 1:
            new, metrics = step(state, constants.frozen, data)
        else:

            def body(state: LearnerState, index: jax.Array) -> tuple[LearnerState, Metrics]:
                return step(state, constants.frozen, minibatch(data, index, settings.num_minibatches))

            new, steps = jax.lax.scan(body, state, jnp.arange(num_steps) % settings.num_minibatches)
            reduce = {"min": jnp.min, "max": jnp.max, "finite": jnp.min}
            metrics = {name: reduce.get(name.rpartition("_")[2], jnp.mean)(array) for name, array in steps.items()}
        metrics |= over_all(data.valid, lag, rewards)
        good = (metrics["finite"] > 0) & (metrics["valid_fraction"] > 0)
        state = jax.tree.map(lambda new, old: jnp.where(good, new, old), new, state)
        return state._replace(version=state.version + 1), {name: jnp.float32(metrics[name]) for name in metrics}

    return update


def check(rollouts: Rollouts, num_minibatches: int) -> None:
    """Checks the shapes of the rollouts, while the update is compiled."""
    num_steps, batch = rollouts.reward.shape
    chex.assert_tree_shape_prefix(rollouts.observations, (num_steps + 1, batch))
    chex.assert_shape(rollouts.first, (num_steps + 1, batch))
    chex.assert_shape(rollouts.core, (1, batch, None))
    chex.assert_tree_shape_prefix(rollouts[3:], (num_steps, batch))
    if batch % num_minibatches:
        raise ValueError(f"num_minibatches={num_minibatches} does not divide the {batch} rollouts of each device")


def minibatch(data: Samples, index: jax.Array, count: int) -> Samples:
    """Every count-th rollout, along axis 1: the same ones on however many devices."""

    def take(array: jax.Array) -> jax.Array:
        split = array.reshape(array.shape[0], -1, count, *array.shape[2:])
        return jax.lax.dynamic_index_in_dim(split, index, 2, keepdims=False)

    return jax.tree.map(take, data)


def over_all(valid: jax.Array, lag: jax.Array, rewards: Rewards) -> Metrics:
    """Metrics over all samples, including those that are too old."""
    samples = {"valid_fraction": valid, "lag_mean": lag, "extrinsic_reward": rewards.extrinsic,
               "intrinsic_reward": rewards.intrinsic}  # fmt: skip
    means = jax.tree.map(lambda mean: mean / total(1.0), total(jax.tree.map(jnp.mean, samples)))
    lag_min, lag_max = losses.extremes(lag, jnp.ones_like(valid))
    return means | {"lag_min": lag_min, "lag_max": lag_max}
