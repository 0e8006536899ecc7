"""The algorithms of update.py: APPO, IMPALA and PPO; see `PolicyGradient`."""

from __future__ import annotations

import abc
from typing import Any

from motif_jax.learner.settings import FINITE_RANGE, RATIO_RANGE, Learning, PolicyGradient, Settings


class ClippedSurrogate(PolicyGradient):
    """PPO's loss of the policy."""

    ratio_range: tuple[float, float] | None = FINITE_RANGE  # limits of pi / mu; None: it is not clamped

    def make_learner(self, config: Any, world: Any, learning: Learning) -> tuple[Any, Any]:
        from motif_jax.learner.update import init_state, make_policy_update

        model, settings = learning.model, learning.settings
        update = make_policy_update(model.unroll, learning.shape_rewards, settings, model.acting, self)
        return lambda params: init_state(params, settings), update

    def ratio(self, log_ratio: Any, data: Any) -> Any:
        from motif_jax.learner.losses import clamped_ratio

        return clamped_ratio(log_ratio, self.ratio_range)

    def weigh(self, data: Any) -> Any:
        from motif_jax.learner.losses import weigh

        return weigh(data.valid)

    def policy_loss(self, inputs: Any, settings: Settings) -> Any:
        """This device's part of the loss of the policy, from `losses.LossInputs`. []"""
        from motif_jax.learner.losses import surrogate

        return surrogate(inputs.ratio, inputs.advantage, inputs.weight, *self.bounds(settings))

    def loss(self, inputs: Any, settings: Settings, exploration_coefficient: Any) -> tuple[Any, dict[str, Any]]:
        from motif_jax.learner.losses import sum_of_terms

        return sum_of_terms(self.policy_loss(inputs, settings), inputs, settings, exploration_coefficient)

    def bounds(self, settings: Settings) -> tuple[float, float]:
        return 1 - settings.clip_ratio, 1 + settings.clip_ratio


class OffPolicy(ClippedSurrogate):
    """Targets of V-trace by what acts; it corrects in every optimizer step for changes of the policy."""

    def targets(self, data: Any, values: Any, ratio: Any, settings: Settings, acting: Any) -> Any:
        return acting.targets(data, values, ratio, settings)


class OnPolicy(ClippedSurrogate):
    """Targets that `once_per_update` has computed, which subclasses define."""

    on_policy = True

    def targets(self, data: Any, values: Any, ratio: Any, settings: Settings, acting: Any) -> Any:
        return data.targets

    @abc.abstractmethod
    def once_per_update(self, data: Any, state: Any, frozen: Any, unroll: Any, settings: Settings) -> Any:
        """Adds targets to the samples; see `PolicyGradient`."""


class Appo(OffPolicy):
    """Asynchronous PPO with V-trace."""

    ratio_range = RATIO_RANGE

    def bounds(self, settings: Settings) -> tuple[float, float]:
        return 1 / (1 + settings.clip_ratio), 1 + settings.clip_ratio  # as in sample-factory


class Impala(OffPolicy):
    """V-trace's policy gradient."""

    ratio_range = None

    def bounds(self, settings: Settings) -> tuple[float, float]:
        return PolicyGradient.bounds(self, settings)  # nothing is clipped

    def policy_loss(self, inputs: Any, settings: Settings) -> Any:
        from motif_jax.learner.losses import impala

        return impala(inputs.log_pi, inputs.advantage, inputs.weight)


class Ppo(OnPolicy):
    """PPO with generalised advantage estimation."""

    cuts_steps = True

    def once_per_update(self, data: Any, state: Any, frozen: Any, unroll: Any, settings: Settings) -> Any:
        from motif_jax.learner.losses import with_targets

        return with_targets(data, state.params, frozen, unroll, settings)
