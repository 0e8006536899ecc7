"""Records what a gymnasium environment pays its agent, for `motif-audit` (trajectories.py has the columns)."""

from __future__ import annotations

import fcntl
import math
import secrets
from collections.abc import Callable, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import iterate

from motif_jax.contrib.audit.trajectories import SUCCESS
from motif_jax.files import LineFile

Caption = Callable[[Any, Mapping[str, Any]], str]
Outcome = Callable[[Mapping[str, Any], int], float]


class _Rows:
    """The lines of the episodes of one environment or of several, which are numbered in the order of their beginnings.

    Several processes may write to one file.
    """

    def __init__(self, file: str | Path, caption: Caption | None, outcome: Outcome | None):
        self._caption, self._outcome = caption, outcome
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        self._lock = open(file, "ab")  # noqa: SIM115  (until close)
        fcntl.flock(self._lock, fcntl.LOCK_EX)  # opening cuts a torn last line, so no other process may be writing
        try:
            self._lines = LineFile(Path(file))
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)
        self._run, self._count = secrets.token_hex(4), 0
        self._running = dict[int, tuple[int, int]]()  # of each environment, the episode and its steps

    def begin(self, env: int = 0) -> None:
        self._running[env] = (self._count, 0)
        self._count += 1

    def row(self, observation: Any, reward: Any, ended: bool, info: Mapping[str, Any], env: int = 0) -> dict[str, Any]:
        episode, step = self._running[env]
        self._running[env] = (episode, step + 1)
        paid = float(np.asarray(reward).item())
        if not math.isfinite(paid):
            raise ValueError(f"the environment's reward is {paid}, which motif-audit does not read")
        row = {
            "episode": f"{self._run}-{episode}", "step": step, "reward": paid, "ended": ended,
            "observation": _hash(observation),
        }  # fmt: skip
        if self._caption is not None or isinstance(observation, str):
            row["caption"] = observation if self._caption is None else self._caption(observation, info)
        if ended and self._outcome is not None:
            row["outcome"] = self._outcome(info, step + 1)
        elif ended:
            row["outcome"] = next((float(info[name]) for name in SUCCESS if name in info), None)
        return row

    def write(self, rows: list[dict[str, Any]]) -> None:
        fcntl.flock(self._lock, fcntl.LOCK_SH)
        try:
            self._lines.add(rows)
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)

    def close(self) -> None:
        self._lines.close()
        self._lock.close()


class Recorder(gymnasium.Wrapper):
    """See `record`."""

    def __init__(self, env: gymnasium.Env, rows: _Rows):
        super().__init__(env)
        self._rows = rows

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        self._rows.begin()
        return self.env.reset(**options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._rows.write([self._rows.row(observation, reward, bool(terminated or truncated), info)])
        return observation, reward, terminated, truncated, info

    def close(self) -> None:
        self._rows.close()
        super().close()


class VectorRecorder(VectorWrapper):
    """See `record`; all three ways of gymnasium to begin an episode after another are known."""

    def __init__(self, env: VectorEnv, rows: _Rows):
        super().__init__(env)
        self._rows = rows
        self._resets = np.zeros(env.num_envs, bool)  # whether the next step of each begins an episode, and pays nothing
        self._mode = AutoresetMode((env.metadata or {}).get("autoreset_mode", AutoresetMode.NEXT_STEP))

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins episodes: all, or those of the mask in `options`."""
        begin = (options or {}).get("reset_mask", np.ones(self.num_envs, bool))
        for env in np.flatnonzero(begin):
            self._rows.begin(int(env))
        self._resets[:] = False
        return self.env.reset(seed=seed, options=options)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        ended, rows = np.logical_or(terminated, truncated), []
        same = self._mode is AutoresetMode.SAME_STEP
        for env, observation in enumerate(iterate(self.observation_space, observations)):
            if self._resets[env]:
                self._rows.begin(env)
                continue
            info = _info_of(infos, env)
            if same and ended[env]:  # the observation is already the next episode's
                observation, info = info.get("final_obs", observation), info.get("final_info", info)
            rows.append(self._rows.row(observation, rewards[env], bool(ended[env]), info, env))
            if same and ended[env]:
                self._rows.begin(env)
        self._resets = ended & (self._mode is AutoresetMode.NEXT_STEP)
        self._rows.write(rows)
        return observations, rewards, terminated, truncated, infos

    def close(self, **options: Any) -> None:
        self._rows.close()
        self.env.close(**options)


def record(env: Any, file: str | Path, caption: Caption | None = None, outcome: Outcome | None = None) -> Any:
    """The environment of gymnasium, or the vector of them, which appends one line per step to a file.

    Args:
      env: it is wrapped last, so that the reward is that of the agent.
      file: JSON lines; it is made if it does not exist.
      caption: what happened, from observation and info; by default the observation, if it is a text.
      outcome: the task's result, from the last info and the number of steps; by default info["is_success"].
    """
    rows = _Rows(file, caption, outcome)
    return VectorRecorder(env, rows) if isinstance(env, VectorEnv) else Recorder(env, rows)


def _info_of(infos: Mapping[str, Any], env: int) -> dict[str, Any]:
    """The info of one environment of a vector: `_NAME` says which environments have NAME."""
    found = {}
    for name, values in infos.items():
        if f"_{name}" in infos and infos[f"_{name}"][env]:
            found[name] = _info_of(values, env) if isinstance(values, Mapping) else values[env]
    return found


def _hash(observation: Any) -> str:
    """A hash of an array, a text, or a tree of them."""
    if isinstance(observation, Mapping):
        observation = [*observation.items()]
    if isinstance(observation, list | tuple):
        return _hash(" ".join(map(_hash, observation)))
    data = observation.tobytes() if isinstance(observation, np.ndarray | np.generic) else repr(observation).encode()
    return blake2b(data, digest_size=8).hexdigest()
