"""Many games in lock-step: actions in, one row of observations out, a new episode after the end of one.

Copies and scaling are done once per step for all games, after all have moved.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from motif_jax.envs.nethack.game_settings import FrameSettings
from motif_jax.envs.nethack.observations import Frames, Observer, frame_keys, open_rows
from motif_jax.envs.seeding import GameSeed, SeedStream, game_seed
from motif_jax.envs.world import WAIT, Rows
from motif_jax.structs import EndStatus, EpisodeInfo


class GameVector:
    """A group of games with their observations."""

    can_wait = True  # skips the action WAIT

    def __init__(
        self,
        num_games: int,
        settings: FrameSettings,
        observations: Iterable[str],
        *,
        seed: int = 0,
        stream: int = SeedStream.TRAIN,
        next_episode: Callable[[int], int] | None = None,
        extra_frames: Iterable[str] = (),
        stepping: Any = None,
    ):
        """Makes the games; call `reset` before stepping.

        See `World.vector`. `observations`: from `observations.OBSERVATIONS` and `EVENTS`.
        """
        observations = tuple(observations)
        keys = frame_keys((*observations, *extra_frames), settings.screen)
        self.frames = Frames(num_games, keys)
        self.observer = Observer(observations, self.frames, settings.screen)
        self.games = [settings.make(self.frames.views(i)) for i in range(num_games)]
        self._terminal_time_limit = settings.reference_time_limit
        self._seed, self._stream = seed, stream
        numbers = itertools.count()
        self._next_episode = next_episode or (lambda _: next(numbers))
        self._stepping = stepping if stepping is not None else [0]
        self._counts = [0] * num_games  # message counts
        self.first = np.ones(num_games, bool)  # [E] whether the frame is an episode's first
        self._any_first = True
        self.finished: list[tuple[int, EpisodeInfo]] = []  # by the last step, with the game's index

    def open_rows(self, rows: dict[str, np.ndarray]) -> Rows:
        """Opens rows for `observe` and `step`."""
        return open_rows(rows)

    def replace_games(self, by: Callable[[Any], Any]) -> None:
        """Replaces each game by `by(game)`, a wrapper with the same interface. Not every vector has this method."""
        self.games[:] = map(by, self.games)

    def reset(self) -> None:
        """Starts an episode in every game."""
        for index in range(len(self.games)):
            self._stepping[0] = index + 1
            self._start(index)
        self.first[:] = self._any_first = True

    def seed_of(self, episode: int) -> GameSeed:
        """Returns the seeds of an episode of this vector."""
        return game_seed(self._seed, self._stream, episode)

    def _start(self, index: int) -> None:
        episode = self._next_episode(index)
        self.games[index].reset(self.seed_of(episode), episode)
        self._counts[index] = self.games[index].message_count

    def play_on(self, index: int, chances: Iterable[float]) -> None:
        """Steps one game without recording: an action per number in [0, 1), all equally likely."""
        game = self.games[index]
        for chance in chances:
            self._stepping[0] = index + 1
            game.step(int(chance * game.num_actions))
            if game.end:
                self._start(index)
        self._counts[index] = game.message_count

    def observe(self, rows: Rows) -> None:
        """Writes the current observations into rows made by `observations.open_rows`."""
        self.observer.observe(rows, self._counts)

    def step(self, actions: Iterable[int], rows: Rows) -> None:
        """Plays one action per game, records it (`world.step_specs` and event_* rows), and starts new episodes.

        Only true values of `terminated` and `truncated` are written: clear their rows before the call.
        """
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
        if self._any_first:
            self.first[:] = False
            self.finished = []
            self._any_first = False
        for index in ends:
            game = self.games[index]
            cut = game.end == EndStatus.ABORTED and not self._terminal_time_limit
            rows["truncated" if cut else "terminated"][index] = True
            self.finished.append((index, game.info()))
            self.first[index] = self._any_first = True
            stepping[0] = index + 1
            self._start(index)

    def close(self) -> None:
        for game in self.games:
            with contextlib.suppress(OSError, SystemExit):
                game.close()
