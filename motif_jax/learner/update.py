"""One update of APPO (asynchronous PPO with V-trace, as in sample-factory), IMPALA or PPO: rollouts in, parameters out.

The loss is a sum of terms, means over the valid samples of all devices: `losses.sum_of_terms`.

APPO: V-trace's rho is the clamped ratio, its advantages are normalised. PPO: see losses.py. A sample is valid if the
acting policy was less than `max_policy_lag` updates old at the start of the update.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import optax

from motif_jax.devices.mesh import DATA, total
from motif_jax.envs.world import WAIT
from motif_jax.learner import losses
from motif_jax.learner.acting import ALONE, Acting
from motif_jax.learner.losses import Rollouts, Samples, Unroll, minibatch
from motif_jax.learner.metrics import Metrics, over_devices, over_steps
from motif_jax.learner.settings import PolicyGradient, Settings, find_algorithm
from motif_jax.schedules import schedule


class TrainingRewards(NamedTuple):
    """The training reward (`total`) and its two sources. [T, B] each"""

    total: jax.Array
    extrinsic: jax.Array
    intrinsic: jax.Array


ShapeRewards = Callable[[Rollouts], TrainingRewards]


class LearnerState(NamedTuple):
    """Everything that an update changes."""

    params: Any
    optimizer: Any
    version: jax.Array  # updates done. int32


def make_optimizer(settings: Settings) -> optax.GradientTransformation:
    """Makes gradient clipping and Adam's directions; `descend` applies the annealed learning rate."""
    adam = optax.scale_by_adam(settings.adam_b1, settings.adam_b2, settings.adam_eps)
    return optax.chain(optax.clip_by_global_norm(settings.max_gradient_norm), adam)


def init_state(params: Any, settings: Settings) -> LearnerState:
    """Makes the state before the first update."""
    optimizer_state = jax.jit(make_optimizer(settings).init)(params)  # one program, not one per shape of a parameter
    return LearnerState(params, optimizer_state, jnp.zeros((), jnp.int32))


def position_of(rollouts: Rollouts, version: jax.Array) -> jax.Array:
    """The position in the schedules, in updates: that of the rollouts, if they have one; inside a mapped function."""
    given = rollouts.schedule_position
    return jax.lax.pmax(given.max(), DATA) if len(given) else version


def learning_rate(settings: Settings, position: jax.Array, optimizer_state: Any) -> jax.Array:
    """The learning rate of the next optimizer step; `position`: in its schedule, in updates.

    It rises in a straight line over the first optimizer steps: Adam's first steps are as long as all others, however
    small the gradient. So the bonus for entropy would move a pretrained network far in a first batch without reward.
    """
    share, decay = settings.anneal_learning_rate_to, settings.learning_rate_decay
    rate = jnp.float32(schedule(decay, settings.learning_rate, share, settings.total_updates)(position))
    if not settings.learning_rate_warmup:
        return rate
    _, adam = optimizer_state
    return rate * jnp.minimum((adam.count + 1) / settings.learning_rate_warmup, 1.0)


def descend(
    optimizer: optax.GradientTransformation, params: Any, optimizer_state: Any, gradients: Any, rate: jax.Array
) -> tuple[Any, Any, Metrics]:
    """Takes one optimizer step; returns parameters, optimizer state, and norms for the metrics."""
    directions, optimizer_state = optimizer.update(gradients, optimizer_state, params)
    updates = jax.tree.map(lambda direction: -rate * direction, directions)
    params = optax.apply_updates(params, updates)
    # the gradient's norm before clipping
    trees = {"gradient_norm": gradients, "update_norm": updates, "parameter_norm": params}
    return params, optimizer_state, {name: optax.tree.norm(tree) for name, tree in trees.items()}


def make_policy_update(
    unroll: Unroll, shape_rewards: ShapeRewards, settings: Settings, acting: Acting = ALONE,
    algorithm: PolicyGradient | None = None,
) -> Callable[..., Any]:  # fmt: skip
    """Makes the learner's step, for `mesh.map_update(update, mesh, batch_axis=1, num_constants=1)`.

    `acting`: what acts; by default the policy alone, with single choices. `algorithm`: one with values of its own;
    None: that of the settings.

    Returns `update(state, frozen, rollouts) -> (state, metrics)`, where `state` has the fields of `LearnerState`, and
    `frozen` are the network's untrained parameters: one pass over the rollouts per epoch, in minibatches of every M-th
    rollout. If a loss, gradient or parameter is not finite, `metrics["finite"]` is 0. In this case, or without valid
    samples, parameters and optimizer are not changed. The version counts every call.
    """
    algorithm = algorithm or find_algorithm(settings.algorithm)  # type: ignore[assignment]
    assert isinstance(algorithm, PolicyGradient)

    def update(state: LearnerState, frozen: Any, rollouts: Rollouts) -> tuple[LearnerState, Metrics]:
        position = position_of(rollouts, state.version)
        rollouts = rollouts._replace(schedule_position=())
        check(rollouts)
        with jax.named_scope("rewards"):
            rewards = shape_rewards(rollouts)
            chex.assert_equal_shape([*rewards, rollouts.reward])
        lag = state.version - rollouts.version
        valid = lag < settings.max_policy_lag
        data = Samples(rollouts, rewards.total, valid)
        with jax.named_scope("targets"):
            data = algorithm.once_per_update(data, state, frozen, unroll, settings)
        if (num_steps := settings.num_epochs * settings.num_minibatches) == 1:
            new, metrics = step(state, frozen, position, data)
        else:

            def body(state: LearnerState, index: jax.Array) -> tuple[LearnerState, Metrics]:
                return step(state, frozen, position, minibatch(data, index, settings.num_minibatches))

            new, steps = jax.lax.scan(body, state, jnp.arange(num_steps) % settings.num_minibatches)
            metrics = over_steps(steps) | {"finite": steps["finite"].min()}
            if algorithm.on_policy:  # the effect of all steps; and 0 up to rounding
                metrics["kl_of_last_epoch"] = steps["kl"][-settings.num_minibatches :].mean()
                metrics["ratio_deviation_of_first_step"] = steps["ratio_deviation"][0]
        metrics |= over_all(data.valid, lag, rewards, rollouts.action)
        good = (metrics["finite"] > 0) & (metrics["valid_fraction"] > 0)
        state = jax.tree.map(lambda new, old: jnp.where(good, new, old), new, state)
        return state._replace(version=state.version + 1), jax.tree.map(jnp.float32, metrics)

    def step(state: LearnerState, frozen: Any, position: jax.Array, data: Samples) -> tuple[LearnerState, Metrics]:
        """Takes one optimizer step; the version is not changed. `position`: in the schedules."""
        rate = learning_rate(settings, position, state.optimizer)
        share, updates = settings.anneal_exploration_to, settings.total_updates
        exploration = schedule("linear", settings.exploration_coefficient, share, updates)
        coefficient = jnp.float32(exploration(position))
        gradient = jax.grad(loss, has_aux=True)
        gradients, (means, spread) = gradient(state.params, frozen, data, coefficient, position)
        with jax.named_scope("optimizer"):
            gradients, means = total(gradients), over_devices(means)
            optimizer = make_optimizer(settings)
            params, optimizer_state, norms = descend(optimizer, state.params, state.optimizer, gradients, rate)
        finite = jnp.isfinite(jnp.stack([means["loss"], *norms.values()])).all()
        metrics = means | spread | norms | {"learning_rate": rate, "finite": finite}
        return state._replace(params=params, optimizer=optimizer_state), metrics

    def loss(
        params: Any, frozen: Any, data: Samples, coefficient: jax.Array, position: jax.Array
    ) -> tuple[jax.Array, tuple[Metrics, Metrics]]:
        """Returns this device's parts of the loss and of averaged metrics, and metrics of all devices' samples.

        `coefficient`: of the exploration term. `position`: in the schedules.
        """
        batch, steps = data.rollouts, len(data.reward)

        def read(observations: dict[str, jax.Array], first: jax.Array) -> tuple[jax.Array, jax.Array]:
            logits, values = unroll(params, frozen, observations, first, batch.core[0])
            chex.assert_equal_shape([values[: steps + 1], batch.first])
            chex.assert_equal_shape([logits[:steps], batch.logits])
            chex.assert_type([logits, values], jnp.float32)
            return logits[:steps], values

        heads, values = acting.unrolled(read, batch, position, settings)
        log_pi, log_mu = losses.add(head.log_pi for head in heads), losses.add(head.log_mu for head in heads)
        ratio = algorithm.ratio(log_pi - log_mu, data)
        with jax.named_scope("step_targets"):
            (targets, advantages), used = algorithm.targets(data, values, ratio, settings, acting)
        value = values[:steps]  # [T, B]
        with jax.named_scope("loss"):
            inputs = losses.LossInputs(
                heads=heads, log_pi=log_pi, log_mu=log_mu, ratio=ratio, value=value, old_value=batch.value,
                target=targets, advantage=used, weight=algorithm.weigh(data), own=data.own,
            )  # fmt: skip
            summed, means = algorithm.loss(inputs, settings, coefficient)
        means |= losses.distances(inputs, *algorithm.bounds(settings))
        return summed, (means, losses.spread(ratio, value, targets, advantages, data.valid))

    return update


def check(rollouts: Rollouts) -> None:
    """Checks the shapes of the rollouts at compile time."""
    num_steps, batch = rollouts.reward.shape
    chex.assert_tree_shape_prefix(rollouts.observations, (num_steps + 1, batch))
    chex.assert_shape(rollouts.first, (num_steps + 1, batch))
    chex.assert_shape(rollouts.core, (1, batch, None))
    not_steps = ("observations", "first", "core", "own")
    others = {name: part for name, part in rollouts._asdict().items() if name not in not_steps}
    chex.assert_tree_shape_prefix(others, (num_steps, batch))


def over_all(valid: jax.Array, lag: jax.Array, rewards: TrainingRewards, action: jax.Array) -> Metrics:
    """Metrics over all samples, including those that are too old; rewards are those of steps that were played."""
    played = action != WAIT if action.ndim == 2 else jnp.ones(action.shape[:2], bool)
    both = {"extrinsic_reward": rewards.extrinsic, "intrinsic_reward": rewards.intrinsic}
    samples = {"valid_fraction": valid, "lag_mean": lag}
    samples |= {name: jnp.where(played, reward, 0.0) for name, reward in both.items()}
    means = jax.tree.map(lambda mean: mean / total(1.0), total(jax.tree.map(jnp.mean, samples)))
    scale = total(jnp.float32(played.size)) / jnp.maximum(total(jnp.float32(played.sum())), 1.0)  # 1 if no game waits
    means |= {name: means[name] * scale for name in both}
    lag_min, lag_max = losses.extremes(lag, jnp.ones_like(lag, bool))
    return means | {"lag_min": lag_min, "lag_max": lag_max}
