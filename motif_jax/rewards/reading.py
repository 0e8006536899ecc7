"""Readings as rewards: numbers that the world records of each step as observations `event_NAME`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from motif_jax.envs.world import select_specs
from motif_jax.rewards.registry import PREFIX, SourceChoice
from motif_jax.rewards.section import SourcesConfig
from motif_jax.rewards.source import Arrays, Facts, RewardSource, Setting
from motif_jax.structs import ArraySpec, UserError

COUNTS = ("event_message_count", "event_drawn")  # numbers that describe the state rather than the step


class Reading(RewardSource):
    """An observation `event_NAME` as the reward of each step."""

    def __init__(self, name: str):
        self.observations = (name,)

    @classmethod
    def make(cls, setting: Setting) -> Reading:
        """See `RewardSource`: the choice's name is that of the observation."""
        check_choice(setting.choice, setting.config, setting)
        return cls(setting.choice.name)

    @classmethod
    def rebuild(cls, arrays: object, facts: Facts) -> Reading:
        return cls(facts["observation"])

    def facts(self) -> Facts:
        return {"observation": self.observations[0]}

    def rewards(self, rollouts: Arrays) -> np.ndarray:
        return rollouts[self.observations[0]].astype(np.float32)


def readings(specs: Mapping[str, ArraySpec]) -> tuple[str, ...]:
    """The names of a world's readings: its observations `event_NAME` that are single numbers."""
    numbers = (name for name, spec in specs.items() if not spec.shape and name.startswith(PREFIX))
    return tuple(name for name in numbers if name not in COUNTS)


def check_choice(choice: SourceChoice, config: SourcesConfig, world: Any) -> None:
    """See `SourceChoice.check`; of the world, only `specs` are read."""
    known = readings(world.specs)
    if choice.name not in known:
        try:
            select_specs({name: world.specs[name] for name in known}, [choice.name])
        except UserError as error:
            raise UserError(f"{error}; single numbers can be rewards (--config.policy.sources)") from None
