"""Learning with options over rewards: the choices made at each step, and the targets for values and advantages."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from motif_jax.learner import losses
from motif_jax.learner.columns import InCharge, decision_rewards, vtrace_in_columns
from motif_jax.learner.samples import Rollouts, Targets
from motif_jax.learner.settings import Settings
from motif_jax.networks.kinds import BEHAVIOUR
from motif_jax.networks.options import OptionHeads

FLOOR = 1e-7  # least divisor of advantages; rewards of a controller are often small


class Control(NamedTuple):
    """The settings of learning with options, and what depends on them."""

    heads: OptionHeads
    by_steps: bool = False  # the controller discounts every game step
    bootstrap_on_switch: bool = True
    exploration: float = 1.0  # weight of the exploration term of the controller's heads, at first
    exploration_left: float = 1.0  # the share of it after all updates
    all_heads: bool = False  # choices without effect count, too

    @property
    def controller(self) -> int:
        return self.heads.options

    def turns(self, batch: Rollouts) -> InCharge:
        """Who was in charge of each step."""
        charge, following = batch.control["charge"], self._next(batch)
        option = jnp.concatenate([batch.control["option"][1:], jnp.full_like(charge[:1], -1)])
        decides = charge == self.controller
        switches = (following == self.controller) & ~self.heads.same(option, charge) & ~decides & ~batch.first[1:]
        return InCharge(self.heads.column(charge), decides, switches & self.bootstrap_on_switch)

    def _next(self, batch: Rollouts) -> jax.Array:
        """Who is in charge of the step after each step. [T, B]"""
        return jnp.where(batch.first[1:], self.controller, batch.control["next"])

    def with_behaviour(self, batch: Rollouts) -> tuple[dict[str, jax.Array], jax.Array]:
        """Observations and `first` with the last moment twice: the second time, the controller is in charge."""
        charge = jnp.concatenate([batch.control["charge"], self._next(batch)[-1:]])
        charge = jnp.concatenate([charge, jnp.full_like(charge[:1], self.controller)])
        twice = {name: jnp.concatenate([array, array[-1:]]) for name, array in batch.observations.items()}
        first = jnp.concatenate([batch.first, jnp.zeros_like(batch.first[:1])])
        return twice | {BEHAVIOUR: self.heads.behaviour(charge)}, first

    def exploration_after(self, version: jax.Array, total_updates: int) -> jax.Array:
        """The weight of the exploration term of the controller's heads, which falls by the same share per update."""
        progress = jnp.minimum(version / max(total_updates, 1), 1.0)
        return self.exploration * jnp.float32(self.exploration_left) ** progress

    def chosen(self, logits: jax.Array, batch: Rollouts, exploration: jax.Array) -> tuple[losses.Head, ...]:
        """The choices of each step; `exploration` is the weight of the controller's exploration term."""
        decides = batch.control["charge"] == self.controller
        new, old = (map(jax.nn.log_softmax, self.heads.split(all_logits)) for all_logits in (logits, batch.logits))
        heads = []
        chosen = [batch.control["drawn"], *self.heads.digits(batch.control["option"]), batch.control["length"]]
        for number, (new_logits, old_logits, choice) in enumerate(zip(new, old, chosen, strict=False)):
            counts, scale = (decides, exploration) if number else (~decides, None)
            heads.append(losses.Head(new_logits, old_logits, choice, None if self.all_heads else counts, scale))
        return tuple(heads)

    def training_rewards(
        self, rewards: jax.Array, factors: jax.Array, batch: Rollouts, discount: float
    ) -> tuple[jax.Array, ...]:
        """The training rewards, and those of the options alone, without the controller's. [T, B] each

        Args:
          rewards: all that are mixed. [S, T, B]
          factors: of each reward for all behaviours and the controller. [N + 1, S]
        """
        turns, ended = self.turns(batch), batch.terminated | batch.truncated
        rewards = jnp.where(turns.decides, 0.0, rewards)
        of_options = (jnp.moveaxis(factors[batch.control["charge"]], -1, 0) * rewards).sum(0)
        of_controller = (factors[-1][:, None, None] * rewards).sum(0)
        sums, _ = decision_rewards(of_controller, turns, ended, discount if self.by_steps else 1.0)
        return jnp.where(turns.decides, sums, of_options), of_options

    def targets(
        self,
        values: jax.Array,
        rewards: jax.Array,
        ratio: jax.Array,
        valid: jax.Array,
        batch: Rollouts,
        settings: Settings,
    ) -> Targets:
        """V-trace in columns, and the advantages normalised per column.

        Args:
          values: of the moments of `with_behaviour`. [T + 2, B]
          rewards: of each step, for the behaviour in charge. [T, B]
          ratio: of V-trace. [T, B]
          valid: samples that count. [T, B] bool
        """
        turns, terminated, truncated = self.turns(batch), batch.terminated, batch.truncated
        if settings.bootstrap == "never":
            terminated = terminated | truncated
        steps, _ = decision_rewards(jnp.ones_like(rewards), turns, terminated | truncated)
        discounts = jnp.full_like(rewards, settings.discount)
        if self.by_steps:
            discounts = jnp.where(turns.decides, settings.discount**steps, discounts)
        columns, at_end = jnp.arange(self.heads.columns)[:, None], self.heads.column(self._next(batch)[-1])
        here, controller = columns == at_end, columns == self.heads.columns - 1
        inferred = settings.bootstrap == "inferred"
        vtrace = vtrace_in_columns(
            values[:-2], rewards, discounts, ratio, turns, terminated, truncated,
            last=jnp.where(here, values[-2], jnp.where(controller, values[-1], 0.0)),
            # No step of the game has followed a decision at the very end.
            known_last=(here | (controller & ~turns.decides[-1])) & (not inferred),
            inferred=inferred, clip_rho=settings.clip_rho, clip_c=settings.clip_c,
        )  # fmt: skip
        return Targets(vtrace, self.normalised(vtrace.advantages, valid, turns.charge, settings))

    def normalised(self, advantages: jax.Array, valid: jax.Array, charge: jax.Array, settings: Settings) -> jax.Array:
        if not settings.normalise_advantages:
            return advantages
        result = jnp.zeros_like(advantages)
        for column in range(self.heads.columns):
            mine = charge == column
            counted = mine if settings.normalise_over_all else mine & valid
            result = jnp.where(mine, losses.normalise(advantages, counted, FLOOR), result)
        return result
