"""Many games of NetHack in lock-step; copies and scaling are done once per step for all games, after all have moved."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from motif_jax.envs.nethack.game_settings import FrameSettings
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
        settings: FrameSettings,
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
        self._counts = [0] * num_games  # message counts

    def open_rows(self, rows: dict[str, np.ndarray]) -> Rows:
        return open_rows(rows)

    def _start(self, index: int) -> None:
        super()._start(index)
        self._counts[index] = self.games[index].message_count

    def play_on(self, index: int, chances: Iterable[float]) -> None:
        super().play_on(index, chances)
        self._counts[index] = self.games[index].message_count

    def draw(self, game: Any, chance: float) -> int:
        return int(chance * game.num_actions)

    def observe(self, rows: Rows) -> None:
        """Writes the current observations into rows made by `observations.open_rows`."""
        self.observer.observe(rows, self._counts)

    def step(self, actions: Iterable[int], rows: Rows) -> None:
        stepping = self._stepping
        counts, rewards, ends = self._counts, rows["reward"], {}
        for index, (game, action) in enumerate(zip(self.games, actions, strict=True)):
            stepping[0] = index + 1
            if action == WAIT:
                rewards[index] = 0.0
                continue
            rewards[index] = game.step(action)
            counts[index] = game.message_count
            if game.end:
                ends[index] = game.last_frame
        self.observer.record_events(rows, counts, ends, self.games)
        self.first[:] = False
        self.finished = []
        for index in ends:
            cut = self.games[index].end == EndStatus.ABORTED and not self._terminal_time_limit
            self._end_episode(index, rows, cut)
