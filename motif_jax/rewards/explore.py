"""Rewards NetHack's hero for squares of the map that it sees for the first time in the episode.

Squares are compared with the most that their level has shown so far, so a square that is hidden and drawn again counts
once. The first squares of an episode count 0, because no action drew them; those of a new level count.

A resumed run begins new episodes, so there is no state to save.
"""

from __future__ import annotations

import numpy as np

from motif_jax.rewards.source import Arrays, RewardSource

BLSTATS, DRAWN = "event_blstats", "event_drawn"
BRANCH, LEVEL = 23, 24  # of the bottom line


class Explore(RewardSource):
    """The number of squares that a step draws for the first time in the episode."""

    observations = (BLSTATS, DRAWN)

    def __init__(self) -> None:
        self._seen: dict[int, dict[tuple[int, int], int]] = {}  # squares of each level, in each game's current episode

    def rewards(self, rollouts: Arrays) -> np.ndarray:
        drawn, levels = rollouts[DRAWN], rollouts[BLSTATS][..., [BRANCH, LEVEL]]
        rewards = np.zeros(drawn.shape, np.float32)
        for column, game in enumerate(rollouts["game"][0].tolist()):
            seen = self._seen.setdefault(game, {})
            columns = rollouts["first"][:-1, column], drawn[:, column], levels[:, column]
            steps = zip(*(array.tolist() for array in columns), strict=True)
            for step, (first, squares, (branch, depth)) in enumerate(steps):
                if first:
                    seen.clear()
                before = seen.get((branch, depth), 0 if seen else squares)
                seen[branch, depth] = max(before, squares)
                rewards[step, column] = seen[branch, depth] - before
        return rewards
