"""Returns of several behaviours in one stream of steps: options and their controller, a column each.

Each step belongs to one column, that of the behaviour in charge. A column's steps follow each other as if the others
did not exist, so that an option's return runs on over the time in which others were in charge, unless it ends there
(`switches`). Otherwise the recursion is V-trace's (vtrace.py):

delta_t = min(rho_t, clip_rho) (r_t + discount_t V_next - V_t)
acc_t = delta_t + discount_t min(rho_t, clip_c) acc_next

where `next` is the next step of the same column. An end of the game ends all columns; at a time limit V_next is V_t, as
in vtrace.py. Where the next step is not known, at a switch, and at the end of the rollout for columns that are not in
charge there, V_next is (V_t - r_t) / discount_t, so that the TD error of such a step is zero. (With V_t in
its place, V would grow to r_t / (1 - discount), and the option would learn to waste steps if a reward then came last.)

The controller's steps are decisions, during which the game stands still. A decision's reward is the sum of the
controller's rewards until the next decision.
"""

from __future__ import annotations

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from motif_jax.learner.vtrace import VTrace


class InCharge(NamedTuple):
    """Who was in charge. [T, B] each"""

    charge: jax.Array  # the column of each step; the last one is the controller's. int32
    decides: jax.Array  # whether the controller was in charge
    switches: jax.Array  # whether the next step of the episode is a decision for another option


def decision_rewards(
    rewards: jax.Array, turns: InCharge, ended: jax.Array, discount: float = 1.0
) -> tuple[jax.Array, jax.Array]:
    """Sums the rewards from each decision to the next one, to the end of the episode or of the rollout.

    Args:
      rewards: the controller's, of the game's steps. [T, B]
      ended: whether the episode ended with the step. [T, B] bool
      discount: per game step.

    Returns:
      The sums, and discount^(number of summed steps), at decisions; 0 and 1 elsewhere. [T, B] each
    """

    def back(carry: tuple[jax.Array, jax.Array], step: tuple[jax.Array, ...]) -> tuple[tuple, tuple]:
        reward, decides, ended = step
        later, power = jnp.where(ended, 0.0, carry[0]), jnp.where(ended, 1.0, carry[1])
        emitted = jnp.where(decides, later, 0.0), jnp.where(decides, power, 1.0)
        return (jnp.where(decides, 0.0, reward + discount * later), jnp.where(decides, 1.0, discount * power)), emitted

    zeros = jnp.zeros_like(rewards[0])
    _, (sums, powers) = jax.lax.scan(back, (zeros, zeros + 1), (rewards, turns.decides, ended), reverse=True)
    return sums, powers


KNOWN, ENDED, CUT, UNKNOWN = range(4)  # status of a column's next step


class Carry(NamedTuple):
    """The next step of each column. [C, B] each"""

    value: jax.Array
    acc: jax.Array
    status: jax.Array  # int32


def vtrace_in_columns(
    values: jax.Array,
    rewards: jax.Array,
    discounts: jax.Array,
    ratio: jax.Array,
    turns: InCharge,
    terminated: jax.Array,
    truncated: jax.Array,
    last: jax.Array,
    known_last: jax.Array,
    *,
    inferred: bool = False,
    clip_rho: float = 1.0,
    clip_c: float = 1.0,
) -> VTrace:
    """Returns targets and advantages of each step, for the column that it belongs to. [T, B] each

    Args:
      values: of the state before each step, for the behaviour in charge. [T, B]
      rewards: of each step, for the behaviour in charge; those of `decision_rewards` at decisions. [T, B]
      discounts: of each step, also where the episode ends. [T, B]
      ratio: current probability of the choices of a step, divided by the acting policy's. [T, B]
      terminated, truncated: ends of the game, and time limits. [T, B] bool
      last: values of the state after the last step, for each column. [C, B]
      known_last: where `last` is known. [C, B] bool
      inferred: as published, V_next is (V_t - r_t) / discount_t at time limits as well.
      clip_rho, clip_c: as for `vtrace`.
    """
    chex.assert_equal_shape([values, rewards, discounts, ratio, *turns, terminated, truncated])
    chex.assert_equal_shape([last, known_last])
    values, rewards, discounts, ratio, last = jax.lax.stop_gradient((values, rewards, discounts, ratio, last))
    columns = jnp.arange(len(last))[:, None]

    def back(carry: Carry, step: tuple[jax.Array, ...]) -> tuple[Carry, VTrace]:
        value, reward, discount, ratio, charge, switches, terminated, truncated = step
        mine = columns == charge  # [C, B]
        status = jnp.where(switches & mine, UNKNOWN, carry.status)
        status = jnp.where(terminated, ENDED, jnp.where(truncated, CUT, status))
        carry = carry._replace(acc=jnp.where(status == KNOWN, carry.acc, 0.0), status=status)
        value_next, acc_next, status = (jnp.where(mine, array, 0).sum(0) for array in carry)
        neutral = (value - reward) / jnp.maximum(discount, 1e-6)  # the next value for which the TD error is 0
        at_cut = neutral if inferred else value
        following = jnp.where(status == CUT, at_cut, jnp.where(status == UNKNOWN, neutral, value_next))
        discount = jnp.where(status == ENDED, 0.0, discount)
        rho = jnp.minimum(ratio, clip_rho)
        acc = rho * (reward + discount * following - value) + discount * jnp.minimum(ratio, clip_c) * acc_next
        advantage = rho * (reward + discount * (following + acc_next) - value)
        this = Carry(value, acc, jnp.full_like(charge, KNOWN))
        carry = Carry(*(jnp.where(mine, new, old) for new, old in zip(this, carry, strict=True)))
        return carry, VTrace(value + acc, advantage)

    start = Carry(last, jnp.zeros_like(last), jnp.where(known_last, KNOWN, UNKNOWN).astype(turns.charge.dtype))
    steps = values, rewards, discounts, ratio, turns.charge, turns.switches, terminated, truncated
    return jax.lax.scan(back, start, steps, reverse=True)[1]
