"""NetHack for the peers: NLE's engine as a class of gymnasium whose observation is the bottom line.

As in NLE's own class, pages are turned and requests for a line of text are escaped.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from nle import nethack

IN_LINE, AT_PAGE = 2, 3  # of the engine's `internal`
SCORE = 9  # of `blstats`
SPACE, ESCAPE = ord(" "), 27


class NetHack(gymnasium.Env):
    """One game; the reward is the change of the score, divided by 10."""

    def __init__(self, keys: list[int], longest: int) -> None:
        """`keys`: of the actions; `longest`: steps after which an episode is cut."""
        self.action_space = gymnasium.spaces.Discrete(len(keys))
        self.observation_space = gymnasium.spaces.Box(-1e6, 1e6, (27,), np.float32)
        self._keys, self._longest = keys, longest
        self._engine = nethack.Nethack(observation_keys=("blstats", "internal"), ttyrec=None)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        self._steps = 0
        line, _ = self._settle(self._engine.reset(), False)
        self._score = self._points(line)
        return line, {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        line, done = self._settle(*self._engine.step(self._keys[int(action)]))
        self._steps += 1
        gained, self._score = self._points(line) - self._score, self._points(line)
        return line, gained / 10, done, self._steps >= self._longest and not done, {}

    @staticmethod
    def _points(line: np.ndarray) -> float:
        return 100 * float(line[SCORE])  # of the bottom line, which is shown a hundred times smaller

    def _settle(self, seen: tuple[np.ndarray, np.ndarray], done: bool) -> tuple[np.ndarray, bool]:
        while not done and (seen[1][IN_LINE] or seen[1][AT_PAGE]):
            seen, done = self._engine.step(SPACE if seen[1][AT_PAGE] else ESCAPE)
        return seen[0].astype(np.float32) / 100, bool(done)
