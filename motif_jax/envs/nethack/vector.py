"""Many games of NetHack in lock-step; copies and scaling are done once per step for all games, after all have moved."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from motif_jax.envs.nethack.game_settings import GameSettings
from motif_jax.envs.nethack.loop import ACCOUNT, ALL, open_loop
from motif_jax.envs.nethack.observations import Frames, Observer, frame_keys, open_rows
from motif_jax.envs.seeding import SeedStream
from motif_jax.envs.sequential import SequentialVector
from motif_jax.envs.world import WAIT, Rows
from motif_jax.structs import EndStatus


class GameVector(SequentialVector):
    """A group of games that write frames, with their observations."""

    def __init__(
        self,
        num_games: int,
        settings: GameSettings,
        observations: Iterable[str],
        *,
        seed: int = 0,
        stream: int = SeedStream.TRAIN,
        extra_frames: Iterable[str] = (),
        **options: Any,
    ):
        """Makes the games; call `reset` before stepping.

        See `World.vector`. `observations`: from `observations.OBSERVATIONS` and `EVENTS`.
        """
        observations = tuple(observations)
        self.frames = Frames(num_games, frame_keys((*observations, *extra_frames), settings.screen))
        self.observer = Observer(observations, self.frames, settings.screen)
        games = [settings.make(self.frames.views(index)) for index in range(num_games)]
        super().__init__(games, (), seed=seed, stream=stream, **options)
        self._terminal_time_limit = settings.reference_time_limit
        self._counts = np.zeros(num_games, np.int32)  # message counts
        self._loop = open_loop(games, self._stepping, self._counts)
        self._all = [ALL] * num_games

    def replace_games(self, by: Callable[[Any], Any]) -> None:
        super().replace_games(by)
        self._loop = None

    def open_rows(self, rows: dict[str, np.ndarray]) -> Rows:
        return open_rows(rows)

    def _start(self, index: int) -> None:
        super()._start(index)
        self._counts[index] = self.games[index].message_count
        if self._loop:
            self._loop.store(index)

    def play_on(self, index: int, chances: Iterable[float]) -> None:
        if self._loop:
            self._loop.load(index)
        super().play_on(index, chances)
        self._counts[index] = self.games[index].message_count
        if self._loop:
            self._loop.store(index)

    def draw(self, game: Any, chance: float) -> int:
        return int(chance * game.num_actions)

    def observe(self, rows: Rows) -> None:
        """Writes the current observations into rows made by `observations.open_rows`."""
        self.observer.observe(rows, self._counts)

    def step(self, actions: Sequence[int], rows: Rows) -> None:
        stepping, loop, counts = self._stepping, self._loop, memoryview(self._counts)
        rewards, ends = rows["reward"], {}
        left = loop.step(actions, rewards) if loop else self._all
        for index, (game, action, what) in enumerate(zip(self.games, actions, left, strict=True)):
            if what < ACCOUNT:
                continue
            if action == WAIT:
                rewards[index] = 0.0
                continue
            stepping[0] = index + 1
            if loop:
                loop.load(index)
            rewards[index] = game.step(action) if what == ALL else game.step(action, pressed=True)
            counts[index] = game.message_count
            if game.end:
                ends[index] = game.last_frame
            elif loop:
                loop.store(index)
        self.observer.record_events(rows, self._counts, ends, self.games)
        self.first[:] = False
        self.finished = []
        for index in ends:
            cut = self.games[index].end == EndStatus.ABORTED and not self._terminal_time_limit
            self._end_episode(index, rows, cut)
