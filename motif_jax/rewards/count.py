"""An episodic count bonus: the n-th appearance of an observation in an episode is worth 1 / n^exponent.

`--config.policy.count.of` names the observation. The game itself counts messages (`event_message`); other observations
are counted here by their bytes, per episode. An observation with the prefix `event_` is the result of the step. For
other observations, the next one counts; then the last step of an episode is worth 0, because the next frame belongs to
another episode.

A resumed run begins new episodes, so there is no state to save.
"""

from __future__ import annotations

import numpy as np

from motif_jax.envs.world import select_specs, waited
from motif_jax.rewards.source import Arrays, Facts, RewardSource, Setting
from motif_jax.structs import naming

MESSAGE, EVENT_COUNT = "event_message", "event_message_count"
FLAG = "--config.policy.count.of"


class CountBonus(RewardSource):
    """1 / n^exponent, where n counts the appearances of the step's observation in the episode, this one included."""

    def __init__(self, of: str, exponent: float):
        self._of, self._exponent = of, exponent
        self._is_event = of.startswith("event_")
        self.observations = (EVENT_COUNT,) if of == MESSAGE else (of,)
        self._seen: dict[int, dict[bytes, int]] = {}  # counts in the current episode of each game

    @classmethod
    def make(cls, setting: Setting) -> CountBonus:
        section = setting.config.policy.count
        with naming(FLAG):
            select_specs(setting.specs, [section.of])
        return cls(section.of, section.exponent)

    @classmethod
    def rebuild(cls, arrays: object, facts: Facts) -> CountBonus:
        return cls(facts["of"], facts["exponent"])

    def facts(self) -> Facts:
        return {"of": self._of, "exponent": self._exponent}

    def rewards(self, rollouts: Arrays) -> np.ndarray:
        if self._of == MESSAGE:
            return 1 / rollouts[EVENT_COUNT] ** float(self._exponent)
        counts = self._count(rollouts)
        worth = 1 / np.maximum(counts, 1) ** float(self._exponent)
        return np.where(counts > 0, worth, 0.0)

    def _count(self, rollouts: Arrays) -> np.ndarray:
        """The count n of each step; 0 for a last step without a next frame of its episode. [T, B]"""
        steps, games = rollouts["reward"].shape
        shown = rollouts[self._of] if self._is_event else rollouts[self._of][1:]
        ended = rollouts["terminated"] | rollouts["truncated"]
        left_out = waited(rollouts["action"])  # a game that waits shows the same moment again
        left_out |= False if self._is_event else ended
        counts = np.zeros((steps, games), np.int64)
        for column, game in enumerate(rollouts["game"][0].tolist()):
            seen = self._seen.setdefault(game, {})
            for step in range(steps):
                if rollouts["first"][step, column]:
                    seen.clear()
                if not left_out[step, column]:
                    what = shown[step, column].tobytes()
                    counts[step, column] = seen[what] = seen.get(what, 0) + 1
        return counts
