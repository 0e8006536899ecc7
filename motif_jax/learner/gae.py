"""Generalised advantage estimation (Schulman et al. 2016, arXiv 1506.02438, section 3), for PPO.

delta_t = r_t + discount_t V_{t+1} - V_t
A_t = delta_t + discount_t trace_t lambda A_{t+1},  A after the last step = 0
R_t = A_t + V_t

`trace_t` is as in vtrace.py, and so are the names. The values are those of the policy that acted, so that targets are
made once per batch, however often it is learnt from.
"""

from __future__ import annotations

import chex
import jax
import jax.numpy as jnp

from motif_jax.learner.vtrace import VTrace


def gae(
    v_tm1: jax.Array, v_t: jax.Array, r_t: jax.Array, discount_t: jax.Array, trace_t: jax.Array, decay: float
) -> VTrace:
    """Targets R and advantages A of one stream [T], or of many [T, B]; no gradient flows through them.

    Args:
      v_tm1: value of the state before each step.
      v_t: value that stands for the future after each step.
      r_t: reward of each step.
      discount_t: 0 where the episode ended.
      trace_t: 0 where the next step belongs to another episode, else 1.
      decay: lambda. 0: one step ahead; 1: all rewards that follow.
    """
    streams = [v_tm1, v_t, r_t, discount_t, trace_t]
    chex.assert_rank(streams, {1, 2})
    chex.assert_equal_shape(streams)
    chex.assert_type(streams, float)
    v_tm1, v_t, r_t, discount_t, trace_t = jax.lax.stop_gradient(streams)
    delta = r_t + discount_t * v_t - v_tm1

    def back(following: jax.Array, step: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        delta, carried = step
        advantage = delta + carried * following
        return advantage, advantage

    _, advantages = jax.lax.scan(back, jnp.zeros_like(delta[0]), (delta, discount_t * trace_t * decay), reverse=True)
    return VTrace(advantages + v_tm1, advantages)
