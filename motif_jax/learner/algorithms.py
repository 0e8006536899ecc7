"""The algorithms of update.py: APPO, IMPALA, PPO, and GRPO and GiGPO in groups of episodes; see `PolicyGradient`."""

from __future__ import annotations

import abc
from typing import Any

from motif_jax.learner.settings import RATIO_RANGE, GroupSettings, Learning, PolicyGradient, Settings
from motif_jax.structs import refuse


class ClippedSurrogate(PolicyGradient):
    """PPO's loss of the policy."""

    def make_learner(self, config: Any, world: Any, learning: Learning) -> tuple[Any, Any]:
        from motif_jax.learner.update import init_state, make_policy_update

        model, settings, group = learning.model, learning.settings, self.group(config.policy)
        update = make_policy_update(model.unroll, learning.shape_rewards, settings, model.acting, group)
        return lambda params: init_state(params, settings, group), update

    def policy_loss(self, inputs: Any, settings: Settings, group: GroupSettings | None) -> Any:
        from motif_jax.learner.losses import surrogate

        return surrogate(inputs.ratio, inputs.advantage, inputs.weight, *self.bounds(settings, group))

    def bounds(self, settings: Settings, group: GroupSettings | None) -> tuple[float, float]:
        clip = settings.clip_ratio
        return 1 - clip, 1 + ((group.clip_high if group else 0.0) or clip)


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
    def once_per_update(self, data: Any, state: Any, frozen: Any, unroll: Any, settings: Settings, group: Any) -> Any:
        """Adds targets to the samples; see `PolicyGradient`."""


class Appo(OffPolicy):
    """Asynchronous PPO with V-trace."""

    ratio_range = RATIO_RANGE

    def bounds(self, settings: Settings, group: GroupSettings | None) -> tuple[float, float]:
        return 1 / (1 + settings.clip_ratio), 1 + settings.clip_ratio  # as in sample-factory


class Impala(OffPolicy):
    """V-trace's policy gradient."""

    ratio_range = None

    def bounds(self, settings: Settings, group: GroupSettings | None) -> tuple[float, float]:
        return PolicyGradient.bounds(self, settings, group)  # nothing is clipped

    def policy_loss(self, inputs: Any, settings: Settings, group: GroupSettings | None) -> Any:
        from motif_jax.learner.losses import impala

        return impala(inputs.log_pi, inputs.advantage, inputs.weight)


class Ppo(OnPolicy):
    """PPO with generalised advantage estimation."""

    cuts_steps = True

    def once_per_update(self, data: Any, state: Any, frozen: Any, unroll: Any, settings: Settings, group: Any) -> Any:
        from motif_jax.learner.losses import with_targets

        return with_targets(data, state.params, frozen, unroll, settings)


class Grpo(OnPolicy):
    """Advantages relative to a group of episodes that begin alike."""

    in_groups = True

    def check(self, config: Any, limit: int, hosts: int) -> None:
        section = config.policy
        games, size = max(section.num_workers, 1) * section.games_per_worker, section.grpo.group_size
        name, length = f"the algorithm {section.algorithm!r}", section.rollout_length
        refuse(
            (hosts > 1, f"{name} does not work with {hosts} hosts (--config.policy.algorithm)"),
            (
                games % size,
                f"{games} games at once cannot play groups of {size} episodes (--config.policy.grpo.group_size, "
                ".num_workers, .games_per_worker)",
            ),
            (
                length < limit,
                f"{name} needs whole episodes, of up to {limit:,} steps, but rollouts have {length} "
                "(--config.policy.rollout_length, .max_episode_steps)",
            ),
            (
                section.batch_size % (games * length),
                f"{name} needs a batch of one episode of each game, or of several: {games} games x {length} steps, or "
                f"a multiple, not {section.batch_size} (--config.policy.batch_size)",
            ),
            (section.warmup_steps, f"episodes of a group begin alike: {name} needs --config.policy.warmup_steps=0"),
        )

    def splits_steps(self, section: Any, memory: bool) -> bool:
        return not memory and section.grpo.ratio == "step"

    def once_per_update(self, data: Any, state: Any, frozen: Any, unroll: Any, settings: Settings, group: Any) -> Any:
        from motif_jax.learner.losses import with_group_targets

        return with_group_targets(data, frozen, state.reference, unroll, settings, group)


class Gigpo(Grpo):
    """GRPO that also compares steps from the same moment."""

    compares_visits = True
