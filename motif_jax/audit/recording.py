"""Records what a gymnasium environment pays its agent, for `motif-audit` (trajectories.py has the columns)."""

from __future__ import annotations

import contextlib
import fcntl
import math
import secrets
from collections.abc import Callable, Iterator, Mapping
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
        self._caption, self._outcome = caption, outcome
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        self._lock = open(file, "ab")  # noqa: SIM115  (until close)
        with self._locked(fcntl.LOCK_EX):  # a torn last line is cut, and nobody else's
            self._lines = LineFile(Path(file))
        self._run, self._episode, self._steps = secrets.token_hex(4), -1, 0

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        """Begins an episode; one that has not ended is left out by the audit."""
        self._episode, self._steps = self._episode + 1, 0
        return self.env.reset(**options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Takes a step, and writes its line."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        ended, paid = bool(terminated or truncated), float(np.asarray(reward).item())
        if not math.isfinite(paid):
            raise ValueError(f"the environment's reward is {paid}, which motif-audit does not read")
        row = {
            "episode": f"{self._run}-{self._episode}", "step": self._steps, "reward": paid, "ended": ended,
            "observation": _hash(observation),
        }  # fmt: skip
        if self._caption is not None or isinstance(observation, str):
            row["caption"] = observation if self._caption is None else self._caption(observation, info)
        self._steps += 1
        if ended and self._outcome is not None:
            row["outcome"] = self._outcome(info, self._steps)
        elif ended:
            row["outcome"] = next((float(info[name]) for name in SUCCESS if name in info), None)
        with self._locked(fcntl.LOCK_SH):
            self._lines.add([row])
        return observation, reward, terminated, truncated, info

    def close(self) -> None:
        """Closes the file and the environment."""
        self._lines.close()
        self._lock.close()
        super().close()

    @contextlib.contextmanager
    def _locked(self, kind: int) -> Iterator[None]:
        """Holds a lock of the file, which other processes may hold, too."""
        fcntl.flock(self._lock, kind)
        try:
            yield
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)


def _hash(observation: Any) -> str:
    """A hash of an array, a text, or a tree of them."""
    if isinstance(observation, Mapping):
        observation = [*observation.items()]
    if isinstance(observation, list | tuple):
        return _hash(" ".join(map(_hash, observation)))
    data = observation.tobytes() if isinstance(observation, np.ndarray | np.generic) else repr(observation).encode()
    return blake2b(data, digest_size=8).hexdigest()
