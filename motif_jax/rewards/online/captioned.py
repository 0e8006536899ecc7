"""The base class of online rewards: the worth of the message that a step led to, divided by a power of its count."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from motif_jax.envs.world import waited
from motif_jax.rewards.section import RewardsSection
from motif_jax.rewards.source import Arrays, Facts, RewardSource


class Captioned(RewardSource):
    """worth(message) / n^exponent, where n counts the message's appearances in the episode, this one included."""

    caption_value = "worth"

    def __init__(self, count_exponent: float, one_step_late: bool):
        """`one_step_late`: as published, reward a step for the message before its action."""
        self._exponent, prefix = float(count_exponent), "" if one_step_late else "event_"
        self.message, self._count = f"{prefix}message", f"{prefix}message_count"
        self.observations = (self.message, self._count)

    def worth(self, messages: np.ndarray) -> np.ndarray:
        """The worth of messages, before the division by counts. [N, 256] uint8 -> [N] float32"""
        raise NotImplementedError

    def moments(self, rollouts: Arrays) -> Arrays:
        """See `RewardSource`: the worth of each step's message, and its counts."""
        steps = len(rollouts["reward"])
        messages, counts = rollouts[self.message][:steps], rollouts[self._count][:steps]
        played = ~waited(rollouts["action"])  # a game that waits shows its message again
        worth = np.zeros(counts.shape, np.float32)
        worth[played] = self.worth(messages[played])
        return {"worth": worth, "counts": counts}

    def shape(self, moments: Mapping[str, Any]) -> Any:
        return moments["worth"] / moments["counts"] ** self._exponent

    def rewards(self, rollouts: Arrays) -> np.ndarray:
        return np.asarray(self.shape(self.moments(rollouts)))


def captioned_facts(section: RewardsSection) -> Facts:
    """Facts that rewards depend on, beside the worth of messages."""
    return {"count_exponent": section.count_exponent, "one_step_late": bool(section.reference_alignment)}
