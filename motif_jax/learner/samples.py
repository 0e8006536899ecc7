"""Training samples: rollouts with their rewards, and the targets of values and advantages.

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
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.devices.mesh import total
from motif_jax.learner import losses
from motif_jax.learner.settings import GroupSettings, Settings, find_algorithm


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
    control: Any = ()  # choices of a policy with options, by name (options.py). [T, B] each
    group: Any = ()  # of grpo and gigpo (below): `played` and `visit`, [T, B], and perhaps `index`, [1, N]
    schedule_position: Any = ()  # steps played before, in batches; else schedules count updates. [1, B] float32


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
    weight: jax.Array | None = None  # of each step in means; None: the valid ones count the same. [T, B]
    reference: jax.Array | None = None  # logits of the policy at the start. [T, B, A]


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
    return losses.normalise(advantages, valid | settings.normalise_over_all)


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


# Advantages relative to a group of episodes that begin alike: GRPO (arXiv 2402.03300) and GiGPO (arXiv 2505.10978).
#
# A batch has one episode of each game. G neighbouring columns are a group: their episodes have the same seed, and were
# played by the same policy. With R, the sum of an episode's rewards, and R_t, the discounted sum from step t on:
#
#     grpo     A_t = (R - mean) / deviation                                   over the group's episodes
#     gigpo    A_t = the same + step_weight (R_t - mean of R_t) / deviation   over the group's visits of the same moment
#
# There is no critic. A group whose episodes have equal returns has advantages of 0.

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


def group_advantages(
    reward: jax.Array, played: jax.Array, visit: jax.Array, settings: Settings, group: GroupSettings
) -> jax.Array:
    """The advantage of each step, 0 where nothing was played. [T, B]

    `played`: the steps of complete groups, before their episodes' ends. [T, B] bool
    `visit`: equal for equal moments of a group, and below T * G. [T, B] int32
    """
    chex.assert_equal_shape([reward, played, visit])
    steps, columns = reward.shape
    reward = jnp.where(played, reward, 0.0)
    group_of = jnp.arange(columns) // group.group_size
    by_deviation = group.divide_by == "deviation"
    of_episode = relative(reward.sum(0), played.any(0), group_of, columns, by_deviation)
    advantages = jnp.where(played, of_episode, 0.0)
    if find_algorithm(settings.algorithm).compares_visits:
        ids = (group_of * steps * group.group_size + visit).reshape(-1)
        remaining = sums_back(reward, jnp.full_like(reward, settings.discount)).reshape(-1)
        of_step = relative(remaining, played.reshape(-1), ids, steps * columns, by_deviation)
        advantages += group.step_weight * of_step.reshape(steps, columns)
    return advantages


def weights(played: jax.Array, group: GroupSettings, num_minibatches: int) -> jax.Array:
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
    data: Samples, frozen: Any, reference: Any, unroll: Unroll, settings: Settings, group: GroupSettings
) -> Samples:
    """Adds advantages and weights to samples, and the reference policy's logits; called inside a mapped function.

    Samples of a policy without memory become one row of the steps that were played. `rollouts.group` has `played` and
    `visit`, and `index`, the places of these steps among the T * B of this device, filled up with -1. [1, N]
    """
    rollouts, groups, (steps, columns) = data.rollouts, data.rollouts.group, data.reward.shape
    played = groups["played"]
    advantages = group_advantages(data.reward, played, groups["visit"], settings, group)
    valid = data.valid & played
    target = sums_back(jnp.where(played, data.reward, 0.0), jnp.full_like(data.reward, settings.discount))
    targets = Targets(VTrace(target, advantages), advantages)
    observations = {name: array[:-1] for name, array in rollouts.observations.items()}
    rollouts = rollouts._replace(observations=observations, first=rollouts.first[:-1], reward_inputs={}, group=())
    weight: Any = weights(valid, group, settings.num_minibatches)
    data = Samples(rollouts, data.reward, valid, targets, weight)
    if "index" in groups:
        index = groups["index"][0]

        def take(array: jax.Array) -> jax.Array:
            return array.reshape(steps * columns, *array.shape[2:])[index][None]

        data = jax.tree.map(take, data._replace(rollouts=rollouts._replace(core=jnp.zeros((steps, columns, 0)))))
        weight = data.weight
        data = data._replace(valid=data.valid & (index >= 0), weight=jnp.where(index >= 0, weight, 0.0))
    if not group.reference_coefficient:
        return data
    batch = data.rollouts
    logits, _ = unroll(reference, frozen, batch.observations, batch.first, batch.core[0])
    return data._replace(reference=jax.lax.stop_gradient(logits))


def log_ratio_of_episodes(log_ratio: jax.Array, valid: jax.Array) -> jax.Array:
    """The mean over each column's valid steps, for ratios of whole episodes (GSPO, arXiv 2507.18071). [T, B] each"""
    mean = jnp.where(valid, log_ratio, 0.0).sum(0) / jnp.maximum(valid.sum(0), 1)
    return jnp.broadcast_to(mean, log_ratio.shape)
