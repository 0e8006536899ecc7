"""From rollouts to the loss: training samples, targets of values and advantages, and the terms of the loss.

APPO and IMPALA compute their targets in each optimizer step, by V-trace (Espeholt et al. 2018, arXiv 1802.01561,
section 4.1), which corrects for changes of the policy. As a recursion, with rho = pi(a|s) / mu(a|s):

    delta_t = min(rho_t, clip_rho) (r_t + discount_t V_{t+1} - V_t)
    v_t = V_t + acc_t,  acc_t = delta_t + discount_t trace_t min(rho_t, clip_c) acc_{t+1},  acc after the last step = 0
    A_t = min(rho_t, clip_rho) (r_t + discount_t v_{t+1} - V_t)

trace_t = 0 cuts the recursion after step t at a time limit: the next step belongs to another episode, but this one did
not end. There, and after the last step, v_{t+1} in A_t is the bootstrap value V_{t+1}.

PPO computes its targets once per update, from the acting policy's values, by generalised advantage estimation (Schulman
et al. 2016, arXiv 1506.02438, section 3). Only the state after the last step is valued by the current policy, because
the acting policy did not see it:

    delta_t = r_t + discount_t V_{t+1} - V_t
    A_t = delta_t + discount_t trace_t lambda A_{t+1},  A after the last step = 0
    R_t = A_t + V_t

Names of arguments follow rlax: `v_tm1` are the values of states before the actions, `v_t` of states after them.

The loss has terms, which are means over the valid samples of all devices (PPO, arXiv 1707.06347; IMPALA, 1802.01561).
To add a term, write its function here, its line in `sum_of_terms`, and its coefficient in settings.py. The metrics show
each term by its name in `sum_of_terms`, which ends in _loss. What an algorithm's `loss` adds there is averaged, unless
it is a `Minimum` or `Maximum` (metrics.py).

Each term takes `weight`, [T, B] from `weigh`: 1 / (valid samples of all devices) for a valid sample, else 0. It returns
this device's part of the mean. The parts and their gradients are summed over the devices by one `total` at the end,
which is not differentiated. Statistics of the samples, also not differentiated, are over all devices.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.devices.mesh import DATA, total
from motif_jax.learner.metrics import Maximum, Minimum
from motif_jax.learner.settings import Settings
from motif_jax.networks.actions import ActionSpace, Gaussian, gaussian, split, unsquash


class VTrace(NamedTuple):
    """Targets of values and advantages of actions, without gradients. [T] or [T, B] each"""

    targets: jax.Array
    advantages: jax.Array


def vtrace(
    v_tm1: jax.Array, v_t: jax.Array, r_t: jax.Array, discount_t: jax.Array, rho_tm1: jax.Array, trace_t: jax.Array,
    clip_rho: float = 1.0, clip_c: float = 1.0,
) -> VTrace:  # fmt: skip
    """Returns targets and advantages of one stream [T], or of many [T, B].

    `discount_t`: 0 where the episode ended. `rho_tm1`: current probability of the action, divided by the acting
    policy's. `trace_t`: 0 where the next step belongs to another episode, else 1. `clip_rho` determines the policy
    whose value is learned, `clip_c` limits how far errors of later values propagate back.
    """
    v_tm1, v_t, r_t, discount_t, rho_tm1, trace_t = constants(v_tm1, v_t, r_t, discount_t, rho_tm1, trace_t)
    rho = jnp.minimum(rho_tm1, clip_rho)
    delta = rho * (r_t + discount_t * v_t - v_tm1)
    carried = discount_t * trace_t * jnp.minimum(rho_tm1, clip_c)

    targets = v_tm1 + sums_back(delta, carried)
    future = jnp.concatenate([jnp.where(trace_t[:-1] > 0, targets[1:], v_t[:-1]), v_t[-1:]])
    return VTrace(targets, rho * (r_t + discount_t * future - v_tm1))


def constants(*streams: jax.Array) -> tuple[jax.Array, ...]:
    """The streams without gradients; all must have the same shape, [T] or [T, B], and be floating-point numbers."""
    chex.assert_rank(streams, {1, 2})
    chex.assert_equal_shape(streams)
    chex.assert_type(streams, float)
    return jax.lax.stop_gradient(streams)


def sums_back(added: jax.Array, carried: jax.Array) -> jax.Array:
    """Computes sum_t = added_t + carried_t sum_{t+1}, from the last step to the first. [T, ...]"""

    def back(later: jax.Array, step: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        added, carried = step
        summed = added + carried * later
        return summed, summed

    return jax.lax.scan(back, jnp.zeros_like(added[0]), (added, carried), reverse=True)[1]


def next_values(
    values: jax.Array, rewards: jax.Array, terminated: jax.Array, truncated: jax.Array, discount: float,
    bootstrap: str = "explicit",
) -> tuple[jax.Array, jax.Array, jax.Array]:  # fmt: skip
    """Returns `v_t` (bootstrap values), `discount_t` and `trace_t` (cuts) for `vtrace`. [T, B] each

    The observation after a cut (`truncated`) belongs to another episode, so the value of the last state before the cut
    replaces the unseen state's. A system that treats the time limit as an end of the game, like the published one, sets
    `terminated` instead.

    `values`: [T + 1, B]; the others [T, B]. `bootstrap`: "explicit": the value after the last step is the last of
    `values`. "inferred": as in the published system, it is V_T = (V_{T-1} - r_{T-1}) / gamma; the last step then has
    advantage 0, its target is its value, and its reward has no effect, unless the episode ends there. "never": as
    "explicit", but a cut is an end (GLAM).
    """
    chex.assert_equal_shape([values[1:], rewards, terminated, truncated])
    v_tm1, v_t = values[:-1], values[1:]
    if bootstrap == "inferred":
        v_t = jnp.concatenate([v_t[:-1], (v_tm1[-1:] - rewards[-1:]) / discount])
    if bootstrap == "never":
        terminated = terminated | truncated
    cut = truncated & ~terminated
    return jnp.where(cut, v_tm1, v_t), discount * (1.0 - terminated), 1.0 - cut


# (params, frozen, observations [T+1, B, ...], first [T+1, B], core [B, H]) -> (logits [T+1, B, A], values [T+1, B])
Unroll = Callable[[Any, Any, dict[str, jax.Array], jax.Array, jax.Array], tuple[jax.Array, jax.Array]]


class Rollouts(NamedTuple):
    """T steps of B games. The batch is always axis 1, along which devices and minibatches split it."""

    observations: dict[str, jax.Array]  # of the policy. [T + 1, B, ...]
    first: jax.Array  # the observation is an episode's first. [T + 1, B] bool
    core: jax.Array  # recurrent state before the first step. [1, B, H]; H = 0 for a policy without one
    action: jax.Array  # [T, B] int32; several choices or numbers (ActionSpace): [T, B, D]
    logits: jax.Array  # outputs of the acting policy. [T, B, A] float32
    value: jax.Array  # its values. [T, B]
    version: jax.Array  # number of updates of the acting policy. [T, B] int32
    reward: jax.Array  # the game's raw reward. [T, B]
    terminated: jax.Array  # [T, B] bool
    truncated: jax.Array  # [T, B] bool
    reward_inputs: dict[str, jax.Array]  # of the intrinsic reward; may be empty. [T, B, ...]
    recorded: Any = ()  # what acts records of each step beside this, by name (`Acting.recorded`). [T, B] each
    own: Any = ()  # what the algorithm's way to play adds (`Playing.arrange`), of any length. [..., B] each
    schedule_position: Any = ()  # of the batch, in updates; (): the learner's version. [1, B] float32


class Targets(NamedTuple):
    """What values and policy learn from. [T, B] each"""

    vtrace: VTrace
    used: jax.Array  # the advantages, normalised over the batch if configured


class Samples(NamedTuple):
    """Rollouts with shaped rewards, which are split into minibatches. Batch on axis 1."""

    rollouts: Rollouts  # with `targets`, only T observations, without the one after the last step
    reward: jax.Array  # [T, B]
    valid: jax.Array  # [T, B] bool
    targets: Targets | None = None
    own: Any = None  # what an algorithm adds for its loss. [T, B, ...] each


def with_targets(data: Samples, params: Any, frozen: Any, unroll: Unroll, settings: Settings) -> Samples:
    """Adds targets of GAE to samples, with the current parameters; called inside a mapped function."""
    rollouts, memory = data.rollouts, data.rollouts.core.shape[-1]
    inputs = (rollouts.observations, rollouts.first)
    if not memory:  # the last observation is enough
        inputs = jax.tree.map(lambda array: array[-1:], inputs)
    last = unroll(params, frozen, *inputs, rollouts.core[0])[1][-1:]
    values = jnp.concatenate([rollouts.value, last])  # [T + 1, B]
    ends = (rollouts.terminated, rollouts.truncated)
    v_t, discount_t, trace_t = next_values(values, data.reward, *ends, settings.discount, settings.bootstrap)
    estimates = gae(rollouts.value, v_t, data.reward, discount_t, trace_t, settings.gae_lambda)
    targets = Targets(estimates, normalised(estimates.advantages, data.valid, settings))
    observations = jax.tree.map(lambda array: array[:-1], rollouts.observations)
    rollouts = rollouts._replace(observations=observations, first=rollouts.first[:-1])
    data = data._replace(rollouts=rollouts, targets=targets)
    return data if memory else _as_columns(data)


def vtrace_targets(data: Samples, values: jax.Array, ratio: jax.Array, settings: Settings) -> Targets:
    """V-trace's targets of samples; `values`: of the trained policy. [T + 1, B]"""
    batch = data.rollouts
    ends = (batch.terminated, batch.truncated)
    v_t, discount_t, trace_t = next_values(values, data.reward, *ends, settings.discount, settings.bootstrap)
    clips = (settings.clip_rho, settings.clip_c)
    estimates = vtrace(values[:-1], v_t, data.reward, discount_t, ratio, trace_t, *clips)
    return Targets(estimates, normalised(estimates.advantages, data.valid, settings))


def gae(
    v_tm1: jax.Array, v_t: jax.Array, r_t: jax.Array, discount_t: jax.Array, trace_t: jax.Array, decay: float
) -> VTrace:
    """As `vtrace`; `decay` is lambda: 0 for one-step advantages, 1 for Monte Carlo returns."""
    v_tm1, v_t, r_t, discount_t, trace_t = constants(v_tm1, v_t, r_t, discount_t, trace_t)
    advantages = sums_back(r_t + discount_t * v_t - v_tm1, discount_t * trace_t * decay)
    return VTrace(advantages + v_tm1, advantages)


def normalised(advantages: jax.Array, valid: jax.Array, settings: Settings) -> jax.Array:
    """Advantages for the loss, normalised if configured. [T, B]"""
    if not settings.normalise_advantages:
        return advantages
    return normalise(advantages, valid | settings.normalise_over_all)


def _as_columns(data: Samples) -> Samples:
    """Moves time into the batch, game by game: [T, B, ...] -> [1, B T, ...]"""

    def lay(array: jax.Array) -> jax.Array:
        steps, batch = array.shape[:2]
        return jnp.moveaxis(array, 0, 1).reshape(1, steps * batch, *array.shape[2:])

    core = jnp.zeros((1, data.reward.size, 0))
    data = jax.tree.map(lay, data)
    return data._replace(rollouts=data.rollouts._replace(core=core))


def minibatch(data: Samples, index: jax.Array, count: int) -> Samples:
    """Takes every count-th column along axis 1, so that minibatches do not depend on the number of devices."""

    def take(array: jax.Array) -> jax.Array:
        split = array.reshape(array.shape[0], array.shape[1] // count, count, *array.shape[2:])
        return jax.lax.dynamic_index_in_dim(split, index, 2, keepdims=False)

    return jax.tree.map(take, data)


def calls_of(steps: int, games: int, parts: int, settings: Settings, most: int = 0) -> np.ndarray:
    """The number of the call in which an update of PPO without memory reads each observation. [T + 1, B]

    `steps`, `games`: T and B, divided among `parts` devices. `most`: observations per call; 0: a minibatch's.
    """
    own_games, count = games // parts, settings.num_minibatches
    most = min(most or steps * own_games, steps * own_games // count)
    columns = np.arange(steps * own_games).reshape(own_games, steps).T  # as `_as_columns` numbers them
    pieces = -(-(steps * own_games // count) // most)  # of a minibatch
    numbers = columns % count * pieces + columns // count // most
    after = count * pieces + np.arange(own_games) // most  # the last observations, which `with_targets` reads
    calls = np.concatenate([numbers, after[None]])  # of one device
    return np.concatenate([calls + part * (calls.max() + 1) for part in range(parts)], 1)


FLOOR = 1e-4  # least divisor of advantages, so that nearly equal returns do not explode


def relative(values: jax.Array, counted: jax.Array, ids: jax.Array, number: int, by_deviation: bool) -> jax.Array:
    """Values relative to those with the same id: (value - mean) / max(deviation, FLOOR), with n - 1 in the deviation.

    0 for values that are not counted, and for those without others. `ids` are below `number`. [N] each
    """
    chex.assert_equal_shape([values, counted, ids])

    def sum_by_id(array: jax.Array) -> jax.Array:
        return jax.ops.segment_sum(jnp.where(counted, array, 0.0), ids, number)[ids]

    count = sum_by_id(jnp.ones_like(values))
    distance = values - sum_by_id(values) / jnp.maximum(count, 1)
    if by_deviation:
        deviation = jnp.sqrt(sum_by_id(distance**2) / jnp.maximum(count - 1, 1))
        distance = distance / jnp.maximum(deviation, FLOOR)
    return jnp.where(counted & (count > 1), distance, 0.0)


# ---- the loss and its terms

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(32)  # of the mean over a standard normal variable
WEIGHTS = WEIGHTS / WEIGHTS.sum()
LOG_2PI = math.log(2 * math.pi)


class Head(NamedTuple):
    """One choice of the policy: an action, a part of one, or another thing that what acts chooses. [T, B] each"""

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


def heads_of(space: ActionSpace | None, logits: jax.Array, batch: Rollouts) -> tuple[Head, ...]:
    """The choices of each step, under the policy with these logits and under the acting one."""
    if space and not space.sizes:
        return (numbers_head(gaussian(logits), gaussian(batch.logits), unsquash(space, batch.action)),)
    if space is None:
        return (choice_head(jax.nn.log_softmax(logits), jax.nn.log_softmax(batch.logits), batch.action),)
    parts = zip(split(space, logits), split(space, batch.logits), jnp.moveaxis(batch.action, -1, 0), strict=True)
    return tuple(choice_head(jax.nn.log_softmax(new), jax.nn.log_softmax(old), taken) for new, old, taken in parts)


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
    weight: jax.Array  # of the algorithm's `weigh`
    own: Any = None  # of `Samples`

    def of_head(self, samples: jax.Array, head: Head) -> jax.Array:
        """This device's part of the mean over the steps at which a choice took effect. [T, B] -> []"""
        return part_of_mean(samples, self.weight if head.counts is None else jnp.where(head.counts, self.weight, 0.0))


def sum_of_terms(
    policy_loss: jax.Array, inputs: LossInputs, settings: Settings, exploration_coefficient: jax.Array
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Returns this device's part of the loss, and of the metrics: the loss, its terms by name, the entropy. [] each

    `exploration_coefficient` is annealed.
    """
    value_error = value_loss(inputs.value, inputs.old_value, inputs.target, inputs.weight, settings.clip_value)
    entropies = [inputs.of_head(head.entropy, head) for head in inputs.heads]
    explored = zip(inputs.heads, entropies, strict=True)
    exploration_loss = add(-entropy if head.scale is None else head.scale * -entropy for head, entropy in explored)
    terms = {
        "policy_loss": policy_loss,
        "value_loss": settings.value_coefficient * value_error,
        "exploration_loss": exploration_loss * exploration_coefficient,
    }
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


def clamped_ratio(log_ratio: jax.Array, limits: tuple[float, float] | None) -> jax.Array:
    """Returns pi / mu clamped to limits, with zero gradient outside; None: not clamped."""
    if limits is None:
        return jnp.exp(log_ratio)
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


def extremes(samples: jax.Array, counted: jax.Array) -> tuple[Minimum, Maximum]:
    """Returns minimum and maximum of the counted samples of all devices. [T, B], [T, B] bool"""
    samples = samples.astype(jnp.float32)
    lowest = samples.min(where=counted, initial=jnp.inf)
    highest = samples.max(where=counted, initial=-jnp.inf)
    return Minimum(jax.lax.pmin(lowest, DATA)), Maximum(jax.lax.pmax(highest, DATA))


def spread(
    ratio: jax.Array, values: jax.Array, targets: jax.Array, advantages: jax.Array, valid: jax.Array
) -> dict[str, Any]:
    """Returns metrics of the valid samples: extremes, means, deviations; not differentiated. [T, B] each"""
    ratio, values = jax.lax.stop_gradient((ratio, values))
    means, stds = statistics(jnp.stack([values, targets, advantages, targets - values]), valid)
    named: dict[str, Any] = {
        "value_mean": means[0],
        "target_mean": means[1],
        "advantage_mean": means[2],
        "advantage_std": stds[2],
    }
    named["explained_variance"] = 1 - (stds[3] / jnp.maximum(stds[1], 1e-8)) ** 2
    for name, samples in (("ratio", ratio), ("advantage", advantages)):
        named[f"{name}_min"], named[f"{name}_max"] = extremes(samples, valid)
    return named
