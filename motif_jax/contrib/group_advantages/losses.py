"""Advantages relative to a group of episodes that begin alike: GRPO (arXiv 2402.03300) and GiGPO (arXiv 2505.10978).

A batch has one episode of each game. G neighbouring columns are a group: their episodes have the same seed, and were
played by the same policy. With R, the sum of an episode's rewards, and R_t, the discounted sum from step t on:

    grpo     A_t = (R - mean) / deviation                                   over the group's episodes
    gigpo    A_t = the same + step_weight (R_t - mean of R_t) / deviation   over the group's visits of the same moment

There is no critic. A group whose episodes have equal returns has advantages of 0.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp

from motif_jax.contrib.group_advantages.sections import GroupAdvantages
from motif_jax.devices.mesh import total
from motif_jax.learner.losses import LossInputs, Samples, Targets, Unroll, VTrace, part_of_mean, relative, sums_back
from motif_jax.learner.settings import Settings
from motif_jax.learner.update import LearnerState


class GroupState(NamedTuple):
    """The learner's state."""

    params: Any
    optimizer: Any
    version: jax.Array  # updates done. int32
    reference: Any  # the parameters at the start, if the policy is to stay near them; else ()


class Own(NamedTuple):
    """What the samples of a group have beside others."""

    weight: jax.Array  # of each step in means. [T, B]
    reference: jax.Array | None = None  # logits of the policy at the start. [T, B, A]


def with_reference(state: LearnerState, group: GroupAdvantages) -> GroupState:
    """Adds the reference policy to the state before the first update."""
    return GroupState(*state, jax.tree.map(jnp.copy, state.params) if group.reference_coefficient else ())


def group_advantages(
    reward: jax.Array, played: jax.Array, visit: jax.Array, group: GroupAdvantages, discount: float | None
) -> jax.Array:
    """The advantage of each step, 0 where nothing was played. [T, B]

    `played`: the steps of complete groups, before their episodes' ends. [T, B] bool
    `visit`: equal for equal moments of a group, and below T * G. [T, B] int32
    `discount`: of gigpo; None: grpo
    """
    chex.assert_equal_shape([reward, played, visit])
    steps, columns = reward.shape
    reward = jnp.where(played, reward, 0.0)
    group_of = jnp.arange(columns) // group.group_size
    by_deviation = group.divide_by == "deviation"
    of_episode = relative(reward.sum(0), played.any(0), group_of, columns, by_deviation)
    advantages = jnp.where(played, of_episode, 0.0)
    if discount is not None:
        ids = (group_of * steps * group.group_size + visit).reshape(-1)
        remaining = sums_back(reward, jnp.full_like(reward, discount)).reshape(-1)
        of_step = relative(remaining, played.reshape(-1), ids, steps * columns, by_deviation)
        advantages += group.step_weight * of_step.reshape(steps, columns)
    return advantages


def weights(played: jax.Array, group: GroupAdvantages, num_minibatches: int) -> jax.Array:
    """The weight of each step in the loss, for all minibatches together `num_minibatches`. [T, B] bool -> [T, B]

    mean_over: "steps" of the batch; "episodes": the mean over an episode's steps, then over episodes; "limit": the sum
    over an episode's steps, divided by the time limit, then the mean over episodes.
    """
    length = played.sum(0)
    per_episode: Any = {"steps": 1, "episodes": jnp.maximum(length, 1), "limit": len(played)}[group.mean_over]
    share = played.astype(jnp.float32) / per_episode
    divisor = share.sum() if group.mean_over == "steps" else (length > 0).sum().astype(jnp.float32)
    return num_minibatches * share / jnp.maximum(total(divisor), 1)


def with_group_targets(
    data: Samples, frozen: Any, reference: Any, unroll: Unroll, settings: Settings, group: GroupAdvantages,
    discount: float | None,
) -> Samples:  # fmt: skip
    """Adds advantages and weights to samples, and the reference policy's logits; called inside a mapped function.

    Samples of a policy without memory become one row of the steps that were played. `rollouts.own` has `played` and
    `visit`, and `index`, the places of these steps among the T * B of this device, filled up with -1. [1, N]
    """
    rollouts, groups, (steps, columns) = data.rollouts, data.rollouts.own, data.reward.shape
    played = groups["played"]
    advantages = group_advantages(data.reward, played, groups["visit"], group, discount)
    valid = data.valid & played
    target = sums_back(jnp.where(played, data.reward, 0.0), jnp.full_like(data.reward, settings.discount))
    targets = Targets(VTrace(target, advantages), advantages)
    observations = {name: array[:-1] for name, array in rollouts.observations.items()}
    rollouts = rollouts._replace(observations=observations, first=rollouts.first[:-1], reward_inputs={}, own=())
    weight: Any = weights(valid, group, settings.num_minibatches)
    data = Samples(rollouts, data.reward, valid, targets, Own(weight))
    if "index" in groups:
        index = groups["index"][0]

        def take(array: jax.Array) -> jax.Array:
            return array.reshape(steps * columns, *array.shape[2:])[index][None]

        data = jax.tree.map(take, data._replace(rollouts=rollouts._replace(core=jnp.zeros((steps, columns, 0)))))
        weight = data.own.weight
        data = data._replace(valid=data.valid & (index >= 0), own=Own(jnp.where(index >= 0, weight, 0.0)))
    if not group.reference_coefficient:
        return data
    batch = data.rollouts
    logits, _ = unroll(reference, frozen, batch.observations, batch.first, batch.core[0])
    return data._replace(own=data.own._replace(reference=jax.lax.stop_gradient(logits)))


def log_ratio_of_episodes(log_ratio: jax.Array, valid: jax.Array) -> jax.Array:
    """The mean over each column's valid steps, for ratios of whole episodes (GSPO, arXiv 2507.18071). [T, B] each"""
    mean = jnp.where(valid, log_ratio, 0.0).sum(0) / jnp.maximum(valid.sum(0), 1)
    return jnp.broadcast_to(mean, log_ratio.shape)


def add_reference_loss(
    loss: jax.Array, means: dict[str, jax.Array], inputs: LossInputs, group: GroupAdvantages
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Adds the divergence from the policy at the start, if it counts, to the loss and the metrics."""
    if inputs.own.reference is None:
        return loss, means
    (log_all,) = (head.log_all for head in inputs.heads)
    apart = (jnp.exp(log_all) * (log_all - jax.nn.log_softmax(inputs.own.reference))).sum(-1)
    term = group.reference_coefficient * part_of_mean(apart, inputs.weight)
    return loss + term, means | {"reference_loss": term, "loss": loss + term}
