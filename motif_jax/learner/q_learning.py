"""Q-learning from a replay buffer (Watkins 1989; DRRN's algorithm, He et al. 2016, arXiv 1511.04636).

target = r + discount max_a' Q(s', a'), or r at the end of the episode
loss = mean of huber(Q(s, a) - target), without gradient through the target

Q are the network's logits, so that sampling actions from their softmax explores. Targets are computed with the current
parameters, without a target network. As in vtrace.py, the last state before a time limit replaces the unseen state
after it; with bootstrap = "never", a time limit is an end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import optax

from motif_jax.learner.replay import ReplayBuffer, StoredSteps, Transitions, add, count_steps, draw
from motif_jax.learner.samples import Rollouts, Unroll
from motif_jax.learner.settings import ReplaySettings, Settings
from motif_jax.learner.update import Metrics, ShapeRewards, annealed, descend, make_optimizer, over_all


class QState(NamedTuple):
    """Everything that an update changes."""

    params: Any
    optimizer: Any
    version: jax.Array  # updates done. int32
    replay: ReplayBuffer


def init_q_state(params: Any, settings: Settings, replay: ReplayBuffer) -> QState:
    """Makes the state before the first update."""
    return QState(params, make_optimizer(settings).init(params), jnp.zeros((), jnp.int32), replay)


def td_targets(following: jax.Array, drawn: Transitions, discount: float, bootstrap: str) -> jax.Array:
    """Returns targets of Q for the actions taken. [n]

    Args:
      following: Q of all actions in the next states. [n, A]
      drawn: the transitions.
      discount: gamma
      bootstrap: "never": a time limit is an end.
    """
    chex.assert_rank([following, drawn.reward], [2, 1])
    ended = drawn.terminated | drawn.truncated if bootstrap == "never" else drawn.terminated
    return drawn.reward + discount * jnp.where(ended, 0.0, jax.lax.stop_gradient(following).max(-1))


def td_loss(q: jax.Array, drawn: Transitions, target: jax.Array) -> tuple[jax.Array, Metrics]:
    """Returns the loss, [], and metrics, for Q of all actions, [n, A], transitions, and targets, [n]."""
    chex.assert_rank([q, target], [2, 1])
    chosen = jnp.take_along_axis(q, drawn.action[:, None], -1)[:, 0]
    loss = optax.huber_loss(chosen, target).mean()
    log_all = jax.nn.log_softmax(q)
    means = {
        "loss": loss,
        "td_error": jnp.abs(chosen - target).mean(),
        "value_mean": chosen.mean(),
        "value_max": chosen.max(),
        "target_mean": target.mean(),
        "entropy": -(jnp.exp(log_all) * log_all).sum(-1).mean(),
    }
    return loss, means


def make_q_update(
    unroll: Unroll, shape_rewards: ShapeRewards, settings: Settings, replay: ReplaySettings, seed: int
) -> Callable[..., Any]:
    """Makes the learner's step on one device: `update(state, frozen, rollouts) -> (state, metrics)`.

    The update adds the rollouts to the buffer, then takes num_epochs * num_minibatches optimizer steps, each on newly
    drawn transitions. If a reward is not finite, the buffer is not changed; if a reward or a step is not finite,
    parameters and optimizer are not changed, and `metrics["finite"]` is 0. Draws depend only on the seed and the
    version.

    Args:
      unroll: of a network without memory, whose logits are Q.
      shape_rewards: see update.py.
      settings: of the learner.
      replay: settings of the buffer.
      seed: of the draws.
    """
    optimizer = make_optimizer(settings)
    num_steps = settings.num_epochs * settings.num_minibatches

    def values_of(params: Any, frozen: Any, observations: Mapping[str, jax.Array]) -> jax.Array:
        """Computes Q of all actions in n states. [n, ...] -> [n, A]"""
        one = {name: array[None] for name, array in observations.items()}
        count = replay.minibatch_size
        return unroll(params, frozen, one, jnp.ones((1, count), bool), jnp.zeros((count, 0)))[0][0]

    def loss_of(params: Any, frozen: Any, drawn: Transitions, target: jax.Array) -> tuple[jax.Array, Metrics]:
        return td_loss(values_of(params, frozen, drawn.observations), drawn, target)

    def update(state: QState, frozen: Any, rollouts: Rollouts) -> tuple[QState, Metrics]:
        with jax.named_scope("rewards"):
            rewards = shape_rewards(rollouts)
            chex.assert_equal_shape([*rewards, rollouts.reward])
        new = StoredSteps(
            rollouts.observations, rollouts.action, rewards.total, rollouts.terminated, rollouts.truncated
        )
        usable = jnp.isfinite(rewards.total).all()
        kept = add(state.replay, new, usable)
        rate = annealed(settings.learning_rate, settings.learning_rate_end, state.version, settings.total_updates)

        def step(learnt: tuple[Any, Any], key: jax.Array) -> tuple[tuple[Any, Any], Metrics]:
            params, optimizer_state = learnt
            with jax.named_scope("draw"):
                drawn = draw(kept, key, replay.minibatch_size, replay.rewarded_share)
            with jax.named_scope("targets"):
                following = values_of(params, frozen, drawn.following)
                target = td_targets(following, drawn, settings.discount, settings.bootstrap)
            gradients, means = jax.grad(loss_of, has_aux=True)(params, frozen, drawn, target)
            *learnt_more, norms = descend(optimizer, params, optimizer_state, gradients, rate)
            finite = jnp.isfinite(jnp.stack([means["loss"], *norms.values()])).all()
            return tuple(learnt_more), means | norms | {"finite": finite}

        keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), state.version), num_steps)
        before = state.params, state.optimizer
        after, steps = jax.lax.scan(step, before, keys)
        reduce = {"max": jnp.max, "finite": jnp.min}
        metrics = {name: reduce.get(name.rpartition("_")[2], jnp.mean)(array) for name, array in steps.items()}
        metrics["finite"] &= usable
        lag = state.version - rollouts.version
        metrics |= over_all(jnp.ones_like(rollouts.terminated), lag, rewards)
        metrics |= {"learning_rate": rate, "replay_steps": count_steps(kept)}
        params, optimizer_state = jax.tree.map(lambda new, old: jnp.where(metrics["finite"], new, old), after, before)
        metrics = {name: jnp.float32(metrics[name]) for name in metrics}
        return QState(params, optimizer_state, state.version + 1, kept), metrics

    return update
