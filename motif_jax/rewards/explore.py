"""Rewards NetHack's hero for new squares, and punishes steps that take no game time.

The reward of a step is the number of squares that it draws on the map for the first time in the episode, less `idle` if
the game's clock stood still. Squares are compared with the most that their level has shown so far, so a square that is
hidden and drawn again counts once. The first squares of an episode count 0, because no action drew them.

A resumed run begins new episodes, so there is no state to save.
"""

from __future__ import annotations

import numpy as np

from motif_jax.envs.world import select_specs
from motif_jax.rewards.source import Arrays, Facts, RewardSource, Setting
from motif_jax.structs import UserError

BLSTATS, DRAWN = "event_blstats", "event_drawn"
TURNS, BRANCH, LEVEL = 20, 23, 24  # of the bottom line


class Explore(RewardSource):
    """New squares, less `idle` for a step without game time."""

    observations = (BLSTATS, DRAWN)

    def __init__(self, idle: float):
        """`idle`: the cost of a step without game time, in squares."""
        self._idle = idle
        self._games: dict[int, _Episode] = {}

    @classmethod
    def make(cls, setting: Setting) -> Explore:
        """See `RewardSource`."""
        try:
            select_specs(setting.specs, cls.observations)
        except UserError:
            raise UserError("the reward source 'explore' needs NetHack's map (--config.policy.sources)") from None
        return cls(setting.config.policy.explore.idle)

    @classmethod
    def rebuild(cls, arrays: object, facts: Facts) -> Explore:
        """See `RewardSource`."""
        return cls(facts["idle"])

    def facts(self) -> Facts:
        """See `RewardSource`."""
        return {"idle": self._idle}

    def rewards(self, rollouts: Arrays) -> np.ndarray:
        """See `RewardSource`."""
        drawn, clock = rollouts[DRAWN], rollouts[BLSTATS][..., [BRANCH, LEVEL, TURNS]]
        found = np.zeros(drawn.shape, np.float32)
        for column, game in enumerate(rollouts["game"][0].tolist()):
            episode = self._games.setdefault(game, _Episode())
            steps = zip(
                rollouts["first"][:-1, column].tolist(),
                drawn[:, column].tolist(),
                clock[:, column].tolist(),
                strict=True,
            )
            for step, (first, squares, (branch, level, turns)) in enumerate(steps):
                if first:
                    episode.begin()
                new, idle = episode.step((branch, level), squares, turns)
                found[step, column] = new - self._idle * idle
        return found


class _Episode:
    """The squares and the clock of an episode that is being played."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Forgets the last episode."""
        self._most: dict[tuple[int, int], int] = {}  # squares, by level
        self._turns = -1

    def step(self, level: tuple[int, int], squares: int, turns: int) -> tuple[int, bool]:
        """Returns the number of new squares, and whether the clock stood still."""
        before = self._most.get(level, 0 if self._most else squares)
        self._most[level] = max(before, squares)
        idle, self._turns = turns == self._turns, turns
        return self._most[level] - before, idle
