"""Records what a gymnasium environment pays its agent, for `motif-audit` (trajectories.py has the columns)."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from motif_jax.audit.trajectories import SUCCESS
from motif_jax.files import LineFile


class Recorder(gymnasium.Wrapper):
    """The environment, which appends one line per step to a file. Several processes may write to one file."""

    def __init__(
        self,
        env: gymnasium.Env,
        file: str | Path,
        caption: Callable[[Any, Mapping[str, Any]], str] | None = None,
        outcome: Callable[[Mapping[str, Any], int], float] | None = None,
    ):
        """Opens the file.

        Args:
          env: it is wrapped last, so that the reward is that of the agent.
          file: JSON lines; it is made if it does not exist.
          caption: what happened, from observation and info; by default the observation, if it is a text.
          outcome: the task's result, from the last info and the number of steps; by default info["is_success"].
        """
        super().__init__(env)
        self._lines, self._caption, self._outcome = LineFile(Path(file)), caption, outcome
        self._run, self._episode, self._steps = secrets.token_hex(4), -1, 0

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        """Begins an episode; one that has not ended is left out by the audit."""
        self._episode, self._steps = self._episode + 1, 0
        return self.env.reset(**options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Takes a step, and writes its line."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        ended = bool(terminated or truncated)
        row = {
            "episode": f"{self._run}-{self._episode}", "step": self._steps, "reward": reward, "ended": ended,
            "observation": _hash(observation),
        }  # fmt: skip
        if self._caption is not None or isinstance(observation, str):
            row["caption"] = observation if self._caption is None else self._caption(observation, info)
        self._steps += 1
        if ended and self._outcome is not None:
            row["outcome"] = self._outcome(info, self._steps)
        elif ended:
            row["outcome"] = next((float(info[name]) for name in SUCCESS if name in info), None)
        self._lines.add([row])
        return observation, reward, terminated, truncated, info

    def close(self) -> None:
        """Closes the file and the environment."""
        self._lines.close()
        super().close()


def _hash(observation: Any) -> str:
    """A hash of an array, a text, or a tree of them."""
    if isinstance(observation, Mapping):
        observation = [*observation.items()]
    if isinstance(observation, list | tuple):
        return _hash(" ".join(map(_hash, observation)))
    data = observation.tobytes() if isinstance(observation, np.ndarray | np.generic) else repr(observation).encode()
    return blake2b(data, digest_size=8).hexdigest()
