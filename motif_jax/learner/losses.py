"""The loss and its terms, means over the valid samples of all devices (PPO, arXiv 1707.06347; IMPALA, 1802.01561).

To add a term, write its function here, its line in `sum_of_terms`, and its coefficient in settings.py. The metrics show
each term by its name in `sum_of_terms`, which ends in _loss.

Each term takes `weight`, [T, B] from `weigh`: 1 / (valid samples of all devices) for a valid sample, else 0. It returns
this device's part of the mean. The parts and their gradients are summed over the devices by one `total` at the end,
which is not differentiated. Statistics of the samples, also not differentiated, are over all devices.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.devices.mesh import DATA, total
from motif_jax.learner.settings import GroupSettings, Settings
from motif_jax.networks.actions import Gaussian

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(32)  # of the mean over a standard normal variable
WEIGHTS = WEIGHTS / WEIGHTS.sum()
LOG_2PI = math.log(2 * math.pi)


class Head(NamedTuple):
    """One choice of the policy: an action or, with options, what a controller chooses. [T, B] each"""

    log_pi: jax.Array  # the policy's log probability of what was chosen, 0 at steps without effect
    log_mu: jax.Array  # the acting policy's
    entropy: jax.Array  # of the policy, in nats
    divergence: jax.Array  # KL(mu || pi)
    log_all: Any = None  # the policy's log probabilities. [T, B, A]
    counts: jax.Array | None = None  # steps at which the choice took effect, bool; None: all
    scale: jax.Array | None = None  # weight of its exploration term, []; None: 1


def choice_head(
    log_all: jax.Array, log_old: jax.Array, taken: jax.Array, counts: jax.Array | None = None,
    scale: jax.Array | None = None,
) -> Head:  # fmt: skip
    """A choice among A, from the log probabilities of the policy and of the acting one, [T, B, A]; taken: [T, B]."""

    def of_taken(log: jax.Array) -> jax.Array:
        chosen = jnp.take_along_axis(log, taken[..., None], -1)[..., 0]
        return chosen if counts is None else jnp.where(counts, chosen, 0.0)

    entropy = -(jnp.exp(log_all) * log_all).sum(-1)
    divergence = (jnp.exp(log_old) * (log_old - log_all)).sum(-1)
    return Head(of_taken(log_all), of_taken(log_old), entropy, divergence, log_all, counts, scale)


def numbers_head(new: Gaussian, old: Gaussian, taken: jax.Array) -> Head:
    """Actions of D numbers, drawn as u from squashed Gaussians (networks/actions.py). [T, B, D] each

    Each number is scaled to (-1, 1), so that bounds do not change the terms; the entropy of one that is uniform there
    is 0.69. Ratios are those of the Gaussians: the squashing changes both densities by the same factor.
    """
    difference, change = (old.mean - new.mean) * jnp.exp(-new.log_scale), old.log_scale - new.log_scale
    divergence = ((jnp.exp(2 * change) + difference**2 - 1) / 2 - change).sum(-1)
    return Head(log_density(new, taken), log_density(old, taken), squashed_entropies(new).sum(-1), divergence)


def log_density(distribution: Gaussian, u: jax.Array) -> jax.Array:
    """[..., D] -> [...]"""
    z = (u - distribution.mean) * jnp.exp(-distribution.log_scale)
    return -(z**2 / 2 + distribution.log_scale + LOG_2PI / 2).sum(-1)


def squashed_entropies(distribution: Gaussian) -> jax.Array:
    """Entropies of tanh(u): those of the Gaussian plus the mean of log(1 - tanh(u)^2), by quadrature. [..., D]"""
    u = distribution.mean[..., None] + jnp.exp(distribution.log_scale)[..., None] * NODES.astype(np.float32)
    log_slope = 2 * (math.log(2) - u - jax.nn.softplus(-2 * u))
    return (1 + LOG_2PI) / 2 + distribution.log_scale + log_slope @ WEIGHTS.astype(np.float32)


class LossInputs(NamedTuple):
    """Inputs of the terms. The default shape is [T, B]. The policy is the trained one."""

    heads: tuple[Head, ...]  # the choices of each step
    log_pi: jax.Array  # log probability of the choices that took effect
    log_mu: jax.Array  # that of the acting policy
    ratio: jax.Array  # pi / mu, clamped to RATIO_RANGE for APPO and to FINITE_RANGE for PPO
    value: jax.Array
    old_value: jax.Array  # of the acting policy
    target: jax.Array  # of the value, without gradient
    advantage: jax.Array  # normalised if configured, without gradient
    weight: jax.Array  # of `weigh`
    reference: jax.Array | None = None  # log probabilities of the policy at the start, of grpo and gigpo. [T, B, A]

    def of_head(self, samples: jax.Array, head: Head) -> jax.Array:
        """This device's part of the mean over the steps at which a choice took effect. [T, B] -> []"""
        return part_of_mean(samples, self.weight if head.counts is None else jnp.where(head.counts, self.weight, 0.0))


def sum_of_terms(
    policy_loss: jax.Array, inputs: LossInputs, settings: Settings, exploration_coefficient: jax.Array,
    group: GroupSettings | None = None,
) -> tuple[jax.Array, dict[str, jax.Array]]:  # fmt: skip
    """Returns this device's part of the loss, and of the metrics: the loss, its terms by name, the entropy. [] each

    `exploration_coefficient` is annealed. `group`: of grpo and gigpo, which have no critic.
    """
    value_error = value_loss(inputs.value, inputs.old_value, inputs.target, inputs.weight, settings.clip_value)
    entropies = [inputs.of_head(head.entropy, head) for head in inputs.heads]
    explored = zip(inputs.heads, entropies, strict=True)
    exploration_loss = add(-entropy if head.scale is None else head.scale * -entropy for head, entropy in explored)
    terms = {
        "policy_loss": policy_loss,
        "value_loss": (0.0 if group else settings.value_coefficient) * value_error,
        "exploration_loss": exploration_loss * exploration_coefficient,
    }
    if group and inputs.reference is not None:
        (log_all,) = (head.log_all for head in inputs.heads)
        divergence = part_of_mean((jnp.exp(log_all) * (log_all - inputs.reference)).sum(-1), inputs.weight)
        terms["reference_loss"] = group.reference_coefficient * divergence
    loss = add(terms.values())
    return loss, terms | {"loss": loss, "entropy": add(entropies)}


def add(terms: Iterable[jax.Array]) -> jax.Array:
    """The sum, without the 0 with which Python's `sum` begins."""
    return functools.reduce(operator.add, terms)


def distances(inputs: LossInputs, lowest: float, highest: float) -> dict[str, jax.Array]:
    """Returns this device's part of mean distances between the policy and the acting one. [] each

    `lowest`, `highest`: beyond which ratios are clipped.
    """
    outside = (inputs.ratio < lowest) | (inputs.ratio > highest)
    return {
        "kl": add(inputs.of_head(head.divergence, head) for head in inputs.heads),
        "ratio_deviation": part_of_mean(jnp.abs(1 - inputs.ratio), inputs.weight),
        "fraction_clipped": part_of_mean(outside, inputs.weight),
    }


def weigh(valid: jax.Array) -> jax.Array:
    """Returns weights of samples for means over the valid samples of all devices. [T, B] bool -> [T, B] float32"""
    return valid / jnp.maximum(total(valid.sum()), 1).astype(jnp.float32)


def part_of_mean(samples: jax.Array, weight: jax.Array) -> jax.Array:
    """Returns this device's part of a mean with the weights of `weigh`. [T, B] each -> []"""
    chex.assert_equal_shape([samples, weight])
    # 0 * inf would be NaN, so invalid samples are masked first
    return (jnp.where(weight > 0, samples, 0.0) * weight).sum()


def statistics(samples: jax.Array, counted: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Mean and unbiased standard deviation of all devices' counted samples. [..., T, B], [T, B] bool -> [...] each"""
    number = total(counted.sum()).astype(jnp.float32)
    mean = total(jnp.where(counted, samples, 0.0).sum((-2, -1))) / jnp.maximum(number, 1)
    squares = jnp.where(counted, (samples - mean[..., None, None]) ** 2, 0.0).sum((-2, -1))
    return mean, jnp.sqrt(total(squares) / jnp.maximum(number - 1, 1))


def normalise(advantages: jax.Array, counted: jax.Array, floor: float = 1e-3) -> jax.Array:
    """Normalises advantages to mean 0 and deviation 1, or less if their deviation is below the floor. [T, B]

    `counted`: samples for mean and deviation: the valid ones, or all. [T, B] bool
    """
    chex.assert_equal_shape([advantages, counted])
    mean, std = statistics(advantages, counted)
    return (advantages - mean) / jnp.maximum(std, floor)


def clamped_ratio(log_ratio: jax.Array, limits: tuple[float, float]) -> jax.Array:
    """Returns pi / mu clamped to limits, with zero gradient outside."""
    # clipped before exp, because exp of a large number has an infinite gradient, even if it is masked later
    return jnp.exp(jnp.clip(log_ratio, *map(math.log, limits)))


def surrogate(ratio: jax.Array, advantages: jax.Array, weight: jax.Array, lowest: float, highest: float) -> jax.Array:
    """PPO's clipped surrogate, with bounds of the ratio; advantages are constants. [T, B] each"""
    chex.assert_rank([ratio, advantages, weight], 2)
    clipped = jnp.clip(ratio, lowest, highest)
    return -part_of_mean(jnp.minimum(ratio * advantages, clipped * advantages), weight)


def impala(log_pi: jax.Array, advantages: jax.Array, weight: jax.Array) -> jax.Array:
    """Policy gradient; V-trace's advantages include the ratio. [T, B] each."""
    chex.assert_rank([log_pi, advantages, weight], 2)
    return -part_of_mean(log_pi * jax.lax.stop_gradient(advantages), weight)


def value_loss(
    values: jax.Array, old_values: jax.Array, targets: jax.Array, weight: jax.Array, clip_value: float
) -> jax.Array:
    """Squared error; changes beyond `clip_value` (0: none) from the old value do not reduce it, as in PPO. [T, B]"""
    chex.assert_rank([values, old_values, targets, weight], 2)
    error = (values - targets) ** 2
    if clip_value:
        clipped = old_values + jnp.clip(values - old_values, -clip_value, clip_value)
        error = jnp.maximum(error, (clipped - targets) ** 2)
    return part_of_mean(error, weight)


def extremes(samples: jax.Array, counted: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns minimum and maximum of the counted samples of all devices. [T, B], [T, B] bool"""
    samples = samples.astype(jnp.float32)
    lowest = samples.min(where=counted, initial=jnp.inf)
    highest = samples.max(where=counted, initial=-jnp.inf)
    return jax.lax.pmin(lowest, DATA), jax.lax.pmax(highest, DATA)


def spread(
    ratio: jax.Array, values: jax.Array, targets: jax.Array, advantages: jax.Array, valid: jax.Array
) -> dict[str, jax.Array]:
    """Returns metrics of the valid samples: extremes, means, deviations; not differentiated. [T, B] each"""
    ratio, values = jax.lax.stop_gradient((ratio, values))
    means, stds = statistics(jnp.stack([values, targets, advantages, targets - values]), valid)
    named = {"value_mean": means[0], "target_mean": means[1], "advantage_mean": means[2], "advantage_std": stds[2]}
    named["explained_variance"] = 1 - (stds[3] / jnp.maximum(stds[1], 1e-8)) ** 2
    for name, samples in (("ratio", ratio), ("advantage", advantages)):
        named[f"{name}_min"], named[f"{name}_max"] = extremes(samples, valid)
    return named
