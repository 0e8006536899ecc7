"""V-trace: targets for the value and advantages for the policy, from steps of an older policy.

IMPALA (Espeholt et al. 2018, arXiv 1802.01561), section 4.1, written as a recursion. With rho = pi(a|s) / mu(a|s),

delta_t = min(rho_t, clip_rho) (r_t + discount_t V_{t+1} - V_t)
v_t = V_t + acc_t,  acc_t = delta_t + discount_t trace_t min(rho_t, clip_c) acc_{t+1},  acc after the last step = 0
A_t = min(rho_t, clip_rho) (r_t + discount_t v_{t+1} - V_t)

trace_t = 0 cuts the recursion after step t at a time limit: the next step belongs to another episode, but this one did
not end. There, and after the last step, v_{t+1} in A_t is the bootstrap value V_{t+1}.

Names of arguments follow rlax: `v_tm1` are the values of states before the actions, `v_t` of states after them.
"""

from __future__ import annotations

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp


class VTrace(NamedTuple):
    """Targets of values and advantages of actions, without gradients. [T] or [T, B] each"""

    targets: jax.Array
    advantages: jax.Array


def vtrace(
    v_tm1: jax.Array,  # value of the state before each step
    v_t: jax.Array,  # value of the state after each step
    r_t: jax.Array,  # reward of each step
    discount_t: jax.Array,  # 0 where the episode ended
    rho_tm1: jax.Array,  # current probability of the action, divided by the acting policy's
    trace_t: jax.Array,  # 0 where the next step belongs to another episode, else 1
    clip_rho: float = 1.0,  # determines the policy whose value is learned
    clip_c: float = 1.0,  # limits how far errors of later values propagate back
) -> VTrace:
    """Returns targets and advantages of one stream [T], or of many [T, B]."""
    streams = [v_tm1, v_t, r_t, discount_t, rho_tm1, trace_t]
    chex.assert_rank(streams, {1, 2})
    chex.assert_equal_shape(streams)
    chex.assert_type(streams, float)
    v_tm1, v_t, r_t, discount_t, rho_tm1, trace_t = jax.lax.stop_gradient(streams)
    rho = jnp.minimum(rho_tm1, clip_rho)
    delta = rho * (r_t + discount_t * v_t - v_tm1)
    carried = discount_t * trace_t * jnp.minimum(rho_tm1, clip_c)

    targets = v_tm1 + sums_back(delta, carried)
    future = jnp.concatenate([jnp.where(trace_t[:-1] > 0, targets[1:], v_t[:-1]), v_t[-1:]])
    return VTrace(targets, rho * (r_t + discount_t * future - v_tm1))


def sums_back(added: jax.Array, carried: jax.Array) -> jax.Array:
    """Computes sum_t = added_t + carried_t sum_{t+1}, from the last step to the first. [T, ...]"""

    def back(later: jax.Array, step: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        added, carried = step
        total = added + carried * later
        return total, total

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
