"""The tasks as gymnasium environments, for use with any other library: docs/games.md.

Ids are `motif_jax/` and the published name, see `tasks.TASKS` and `tasks.extended_ids`; `motif_jax/Toy-v0` is the
toy world. Keyword arguments are those of `world.GameSettings`, and `observations`, names from `OBSERVATIONS` and
`EVENTS` in `observations`. The game's time limit is called `time_limit` here, because gymnasium uses
`max_episode_steps` for its own wrapper. Observations have one or two dimensions: a count has shape (1,).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from motif_jax.envs.nethack.observations import COLOURS, HIGH, LOW, POLICY_OBSERVATIONS, SHOWN, Observer, open_rows
from motif_jax.envs.nethack.world import GameSettings
from motif_jax.envs.world import SeedStream, game_seed, plain_shape
from motif_jax.screens import screen_text
from motif_jax.structs import ArraySpec, EndStatus


class GymGame(gymnasium.Env):
    """One game with gymnasium's interface; see the module docstring."""

    metadata = {"render_modes": ["human", "ansi"], "render_fps": 10}  # noqa: RUF012  (gymnasium declares it so)

    def __init__(
        self,
        task: str = "score",
        render_mode: str | None = None,
        observations: Iterable[str] = POLICY_OBSERVATIONS,
        time_limit: int = GameSettings().max_episode_steps,
        **settings: Any,
    ):
        self.render_mode = render_mode
        self._settings = GameSettings(task=task, max_episode_steps=time_limit, **settings)
        self._settings.check()
        self._observer = Observer(1, observations, self._settings.screen, SHOWN if render_mode else ())
        self._game = self._settings.make(self._observer.views(0))
        self.action_space = spaces.Discrete(self._game.num_actions)
        self.observation_space = spaces.Dict({key: _space(key, spec) for key, spec in self._observer.specs.items()})
        self._seed: int | None = None
        self._episode = 0

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        """Starts the first game of a new seed, or the next game of the last seed."""
        super().reset(seed=seed)
        self._episode += 1
        if seed is not None or self._seed is None:
            self._seed, self._episode = int(self.np_random.integers(2**31)) if seed is None else seed, 0
        self._game.reset(game_seed(self._seed, SeedStream.TRAIN, self._episode), self._episode)
        return self._result(first=True), self._info()

    def step(self, action: int) -> tuple[dict, float, bool, bool, dict]:
        reward = self._game.step(int(action))
        end = self._game.end
        truncated = end == EndStatus.ABORTED and not self._settings.reference_time_limit
        terminated = end != EndStatus.RUNNING and not truncated
        return self._result(first=False), reward, terminated, truncated, self._info()

    def render(self) -> str | None:  # type: ignore[override]
        """Prints the terminal in colour (mode `human`), or returns it as plain text (mode `ansi`)."""
        frame = self._game.last_frame if self._game.end else self._game.buffers
        if self.render_mode == "ansi":
            return screen_text(frame["tty_chars"])
        if self.render_mode == "human":
            row, column = frame["tty_cursor"].tolist()
            print("\033[2J\033[H" + screen_text(frame["tty_chars"], frame["tty_colors"], (row, column)))
        return None

    def close(self) -> None:
        self._game.close()

    def _result(self, first: bool) -> dict[str, np.ndarray]:
        if self.render_mode == "human":
            self.render()
        arrays = {key: np.zeros((1, *spec.shape), spec.dtype) for key, spec in self._observer.specs.items()}
        rows = open_rows(arrays)
        counts = np.array([self._game.message_count], np.int32)
        if not first:  # an action precedes all moments except the first
            ends = {0: self._game.last_frame} if self._game.end else {}
            self._observer.record_events(rows, counts, ends, [self._game])
        self._observer.observe(rows, counts)
        return {key: row.reshape(plain_shape(row.shape[1:])) for key, row in arrays.items()}

    def _info(self) -> dict[str, Any]:
        info: dict[str, Any] = dict(self._game.info().named(self._settings.nethack_game.figures))
        info["episode_number"] = info.pop("episode")  # other libraries keep statistics of their own at "episode"
        return info


def _space(key: str, spec: ArraySpec) -> spaces.Box:
    dtype = np.dtype(spec.dtype)
    low, high = (LOW, HIGH) if key == "vector" else (-np.inf, np.inf)  # readings of a step have no limits
    if dtype.kind != "f":
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    lowest, highest = (np.full(spec.shape, limit, dtype) for limit in (low, high))
    if key == "crop":
        highest[1] = COLOURS - 1
    shape = plain_shape(spec.shape)
    return spaces.Box(lowest.reshape(shape), highest.reshape(shape), shape, dtype.type)
