"""What the names `grpo` and `gigpo` stand for. JAX is loaded, with losses.py and playing.py, to make something."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from motif_jax.contrib.group_advantages.sections import NAME, GroupAdvantages
from motif_jax.envs.world import space_of
from motif_jax.envs.worlds import check_world
from motif_jax.learner.algorithms import OnPolicy
from motif_jax.learner.settings import Learning, Settings
from motif_jax.structs import refuse


class Grpo(OnPolicy):
    """Advantages relative to a group of episodes that begin alike."""

    own_minibatches = True  # the steps that were played are padded to a multiple of them
    compares_visits = False

    def __init__(self, group: GroupAdvantages | None = None):
        """`group`: None for one that is only asked what it is; `make_learner` makes another one with its values."""
        self.group = group or GroupAdvantages()

    def check(self, config: Any, limit: int, hosts: int) -> None:
        section = config.policy
        games, size = max(section.num_workers, 1) * section.games_per_worker, config.plugins[NAME].group_size
        name, length = f"the algorithm {section.algorithm!r}", section.rollout_length
        refuse(
            (
                space_of(check_world(config.env)),
                f"{name} needs actions that are one choice each (--config.policy.algorithm, --config.env.world)",
            ),
            (hosts > 1, f"{name} does not work with {hosts} hosts (--config.policy.algorithm)"),
            (
                games % size,
                f"{games} games at once cannot play groups of {size} episodes (--config.{NAME}.group_size, "
                "--config.policy.num_workers, .games_per_worker)",
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

    def splits_steps(self, config: Any, memory: bool) -> bool:
        return not memory and config.plugins[NAME].ratio == "step"

    def make_playing(self, plain: Any, config: Any, mesh: Any) -> Any:
        from motif_jax.contrib.group_advantages.playing import make_in_groups

        return make_in_groups(config, mesh)

    def make_learner(self, config: Any, world: Any, learning: Learning) -> tuple[Any, Any]:
        from motif_jax.contrib.group_advantages.losses import with_reference

        made = type(self)(config.plugins[NAME])
        make_state, update = super(Grpo, made).make_learner(config, world, learning)
        return lambda params: with_reference(make_state(params), made.group), update

    def once_per_update(self, data: Any, state: Any, frozen: Any, unroll: Any, settings: Settings) -> Any:
        from motif_jax.contrib.group_advantages.losses import with_group_targets

        discount = settings.discount if self.compares_visits else None
        return with_group_targets(data, frozen, state.reference, unroll, settings, self.group, discount)

    def ratio(self, log_ratio: Any, data: Any) -> Any:
        from motif_jax.contrib.group_advantages.losses import log_ratio_of_episodes

        by_episode = self.group.ratio == "episode"
        return super().ratio(log_ratio_of_episodes(log_ratio, data.valid) if by_episode else log_ratio, data)

    def weigh(self, data: Any) -> Any:
        return data.own.weight

    def loss(self, inputs: Any, settings: Settings, exploration_coefficient: Any) -> tuple[Any, dict[str, Any]]:
        from motif_jax.contrib.group_advantages.losses import add_reference_loss

        without_critic = replace(settings, value_coefficient=0.0)
        summed = super().loss(inputs, without_critic, exploration_coefficient)
        return add_reference_loss(*summed, inputs, self.group)

    def bounds(self, settings: Settings) -> tuple[float, float]:
        return 1 - settings.clip_ratio, 1 + (self.group.clip_high or settings.clip_ratio)


class Gigpo(Grpo):
    """GRPO that also compares steps from the same moment."""

    compares_visits = True
