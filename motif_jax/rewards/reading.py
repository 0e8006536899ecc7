"""Readings as rewards: numbers that the world records of each step as observations `event_NAME`."""

from __future__ import annotations

import numpy as np

from motif_jax.rewards.source import Arrays, Facts, RewardSource, Setting


class Reading(RewardSource):
    """An observation `event_NAME` as the reward of each step."""

    def __init__(self, name: str):
        self.observations = (name,)

    @classmethod
    def make(cls, setting: Setting) -> Reading:
        """See `RewardSource`: the choice's name is that of the observation."""
        return cls(setting.choice.name)

    @classmethod
    def rebuild(cls, arrays: object, facts: Facts) -> Reading:
        return cls(facts["observation"])

    def facts(self) -> Facts:
        return {"observation": self.observations[0]}

    def rewards(self, rollouts: Arrays) -> np.ndarray:
        return rollouts[self.observations[0]].astype(np.float32)
