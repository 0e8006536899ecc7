"""Learning with options over rewards: the choices made at each step, and the targets for values and advantages.

Options and their controller are several behaviours in one stream of steps, with a column of returns each.

Each step belongs to one column, that of the behaviour in charge. A column's steps follow each other as if the others
did not exist, so that an option's return runs on over the time in which others were in charge, unless it ends there
(`switches`). Otherwise the recursion is V-trace's (losses.py):

delta_t = min(rho_t, clip_rho) (r_t + discount_t V_next - V_t)
acc_t = delta_t + discount_t min(rho_t, clip_c) acc_next

where `next` is the next step of the same column. An end of the game ends all columns; at a time limit V_next is V_t, as
in losses.py. Where the next step is not known, at a switch, and at the end of the rollout for columns that are not in
charge there, V_next is (V_t - r_t) / discount_t, so that the TD error of such a step is zero. (With V_t in
its place, V would grow to r_t / (1 - discount), and the option would learn to waste steps if a reward then came last.)

The controller's steps are decisions, during which the game stands still. A decision's reward is the sum of the
controller's rewards until the next decision.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp

from motif_jax.contrib.options.heads import OptionHeads
from motif_jax.contrib.options.sections import OptionsSection
from motif_jax.learner import losses
from motif_jax.learner.acting import CHOOSER
from motif_jax.learner.losses import Rollouts, Targets, VTrace
from motif_jax.learner.settings import Settings
from motif_jax.networks.kinds import BEHAVIOUR
from motif_jax.schedules import schedule

FLOOR = 1e-7  # least divisor of advantages; rewards of a controller are often small


def decision_rewards(rewards: jax.Array, decides: jax.Array, ended: jax.Array, discount: float = 1.0) -> jax.Array:
    """At decisions, the discounted sums of the rewards to the next one, or to an end; 0 elsewhere. [T, B]

    `rewards`: the controller's, of the game's steps. `ended`: whether the episode ended with the step, bool. [T, B]
    """

    def back(later: jax.Array, step: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array]:
        reward, decides, ended = step
        later = jnp.where(ended, 0.0, later)
        return jnp.where(decides, 0.0, reward + discount * later), jnp.where(decides, later, 0.0)

    return jax.lax.scan(back, jnp.zeros_like(rewards[0]), (rewards, decides, ended), reverse=True)[1]


KNOWN, ENDED, CUT, UNKNOWN = range(4)  # status of a column's next step


def vtrace_in_columns(
    values: jax.Array, rewards: jax.Array, discounts: jax.Array, ratio: jax.Array, charge: jax.Array,
    switches: jax.Array, terminated: jax.Array, truncated: jax.Array, last: jax.Array, known_last: jax.Array, *,
    inferred: bool = False, clip_rho: float = 1.0, clip_c: float = 1.0,
) -> VTrace:  # fmt: skip
    """Returns targets and advantages of each step, for the column that it belongs to. [T, B] each

    `values`, `rewards`: for the behaviour in charge; rewards are those of `decision_rewards` at decisions, [T, B].
    `charge`: the column of each step, the last one of the controller. `switches`: whether the next step of the episode
    is a decision for another option. `discounts`: also where the episode ends. `last`, `known_last`: values of the
    state after the last step, for each column, and where they are known, [C, B]. `inferred`: as published, V_next is
    (V_t - r_t) / discount_t at time limits as well. The others are as for `vtrace`.
    """
    chex.assert_equal_shape([values, rewards, discounts, ratio, charge, switches, terminated, truncated])
    chex.assert_equal_shape([last, known_last])
    values, rewards, discounts, ratio, last = jax.lax.stop_gradient((values, rewards, discounts, ratio, last))
    columns = jnp.arange(len(last))[:, None]

    def back(carry: Any, step: tuple[jax.Array, ...]) -> tuple[Any, VTrace]:
        values, accs, statuses = carry  # of the next step of each column. [C, B] each
        value, reward, discount, ratio, charge, switches, terminated, truncated = step
        mine = columns == charge  # [C, B]
        statuses = jnp.where(switches & mine, UNKNOWN, statuses)
        statuses = jnp.where(terminated, ENDED, jnp.where(truncated, CUT, statuses))
        carry = values, jnp.where(statuses == KNOWN, accs, 0.0), statuses
        value_next, acc_next, status = (jnp.where(mine, array, 0).sum(0) for array in carry)
        neutral = (value - reward) / jnp.maximum(discount, 1e-6)  # the next value for which the TD error is 0
        at_cut = neutral if inferred else value
        following = jnp.where(status == CUT, at_cut, jnp.where(status == UNKNOWN, neutral, value_next))
        discount = jnp.where(status == ENDED, 0.0, discount)
        rho = jnp.minimum(ratio, clip_rho)
        acc = rho * (reward + discount * following - value) + discount * jnp.minimum(ratio, clip_c) * acc_next
        advantage = rho * (reward + discount * (following + acc_next) - value)
        this = value, acc, jnp.full_like(charge, KNOWN)
        carry = tuple(jnp.where(mine, new, old) for new, old in zip(this, carry, strict=True))
        return carry, VTrace(value + acc, advantage)

    start = last, jnp.zeros_like(last), jnp.where(known_last, KNOWN, UNKNOWN).astype(charge.dtype)
    steps = values, rewards, discounts, ratio, charge, switches, terminated, truncated
    return jax.lax.scan(back, start, steps, reverse=True)[1]


class Control(NamedTuple):
    """Learning with options."""

    heads: OptionHeads
    section: OptionsSection

    def turns(self, batch: Rollouts) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Of each step: its column, whether the controller was in charge, and `switches`. [T, B]"""
        charge, following = batch.recorded[CHOOSER], self._next(batch)
        option = jnp.concatenate([batch.recorded["option"][1:], jnp.full_like(charge[:1], -1)])
        decides = charge == self.heads.options
        switches = (following == self.heads.options) & ~self.heads.same(option, charge) & ~decides & ~batch.first[1:]
        return self.heads.column(charge), decides, switches & self.section.bootstrap_on_switch

    def _next(self, batch: Rollouts) -> jax.Array:
        """The behaviour in charge of the step after each step. [T, B]"""
        return jnp.where(batch.first[1:], self.heads.options, batch.recorded["next"])

    def with_behaviour(self, batch: Rollouts) -> tuple[dict[str, jax.Array], jax.Array]:
        """Observations and `first` with the last step twice: the second time, the controller is in charge."""
        charge = jnp.concatenate([batch.recorded[CHOOSER], self._next(batch)[-1:]])
        charge = jnp.concatenate([charge, jnp.full_like(charge[:1], self.heads.options)])
        twice = {name: jnp.concatenate([array, array[-1:]]) for name, array in batch.observations.items()}
        first = jnp.concatenate([batch.first, jnp.zeros_like(batch.first[:1])])
        return twice | {BEHAVIOUR: self.heads.behaviour(charge)}, first

    def exploration_after(self, position: jax.Array, total_updates: int) -> jax.Array:
        """The weight of the exploration term of the controller's heads, which falls by the same share per batch."""
        first, share = self.section.exploration, self.section.anneal_exploration_to
        return jnp.float32(schedule("exponential", first, share, total_updates)(position))

    def chosen(self, logits: jax.Array, batch: Rollouts, exploration: jax.Array) -> tuple[losses.Head, ...]:
        """The choices of each step; `exploration` is the weight of the controller's exploration term."""
        decides = batch.recorded[CHOOSER] == self.heads.options
        new, old = (map(jax.nn.log_softmax, self.heads.split(all_logits)) for all_logits in (logits, batch.logits))
        chosen = [batch.recorded["drawn"], *self.heads.digits(batch.recorded["option"]), batch.recorded["length"]]
        heads = []
        for number, row in enumerate(zip(new, old, chosen, strict=False)):
            counts, scale = (decides, exploration) if number else (~decides, None)
            heads.append(losses.choice_head(*row, None if self.section.heads == "all" else counts, scale))
        return tuple(heads)

    def training_rewards(
        self, rewards: jax.Array, factors: jax.Array, batch: Rollouts, discount: float
    ) -> tuple[jax.Array, ...]:
        """The training rewards, and those of the options alone, without the controller's. [T, B] each

        `rewards`: all that are mixed, [S, T, B]; `factors`: of each for all behaviours and the controller, [N + 1, S].
        """
        (_, decides, _), ended = self.turns(batch), batch.terminated | batch.truncated
        rewards = jnp.where(decides, 0.0, rewards)
        of_options = (jnp.moveaxis(factors[batch.recorded[CHOOSER]], -1, 0) * rewards).sum(0)
        of_controller = (factors[-1][:, None, None] * rewards).sum(0)
        sums = decision_rewards(of_controller, decides, ended, discount if self.section.discount == "steps" else 1.0)
        return jnp.where(decides, sums, of_options), of_options

    def targets(
        self, values: jax.Array, rewards: jax.Array, ratio: jax.Array, valid: jax.Array, batch: Rollouts,
        settings: Settings,
    ) -> Targets:  # fmt: skip
        """V-trace in columns, and the advantages normalised per column. [T, B] each

        `values`: of the observations of `with_behaviour`, [T + 2, B]. `rewards`: for the behaviour in charge.
        """
        (charge, decides, switches), terminated, truncated = self.turns(batch), batch.terminated, batch.truncated
        if settings.bootstrap == "never":
            terminated = terminated | truncated
        discounts = jnp.full_like(rewards, settings.discount)
        if self.section.discount == "steps":
            steps = decision_rewards(jnp.ones_like(rewards), decides, terminated | truncated)
            discounts = jnp.where(decides, settings.discount**steps, discounts)
        columns, at_end = jnp.arange(self.heads.columns)[:, None], self.heads.column(self._next(batch)[-1])
        here, controller = columns == at_end, columns == self.heads.columns - 1
        inferred = settings.bootstrap == "inferred"
        vtrace = vtrace_in_columns(
            values[:-2], rewards, discounts, ratio, charge, switches, terminated, truncated,
            last=jnp.where(here, values[-2], jnp.where(controller, values[-1], 0.0)),
            # No step of the game has followed a decision at the very end.
            known_last=(here | (controller & ~decides[-1])) & (not inferred),
            inferred=inferred, clip_rho=settings.clip_rho, clip_c=settings.clip_c,
        )  # fmt: skip
        return Targets(vtrace, self.normalised(vtrace.advantages, valid, charge, settings))

    def normalised(self, advantages: jax.Array, valid: jax.Array, charge: jax.Array, settings: Settings) -> jax.Array:
        used = advantages
        for column in range(self.heads.columns) if settings.normalise_advantages else ():
            mine = charge == column
            counted = mine if settings.normalise_over_all else mine & valid
            used = jnp.where(mine, losses.normalise(advantages, counted, FLOOR), used)
        return used
