"""Many games in lock-step: actions in, one row of observations out, a new episode where one ended.

What can be done for all games at once (copies, scaling) is done once per step, after all games have moved.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from motif_jax.envs.nethack.observations import Frames, Observer, frame_keys, open_rows
from motif_jax.envs.nethack.settings import FrameSettings
from motif_jax.envs.seeding import GameSeed, SeedStream, game_seed
from motif_jax.envs.world import Rows
from motif_jax.structs import EndStatus, EpisodeInfo


class GameVector:
    """A group of games with their observations."""

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

        Args:
          num_games: games in this group.
          settings: what game.
          observations: names from `observations.OBSERVATIONS` and `EVENTS`.
          seed, stream: with an episode's number, say which game it is.
          next_episode: number of the episode that game i plays next; by default 0, 1, 2, ... as they are asked for.
          extra_frames: raw arrays wanted besides those that the observations need (for a player or a renderer).
          stepping: a writable sequence whose first item is kept at the index of the game being stepped, plus 1.
        """
        observations = tuple(observations)
        keys = frame_keys((*observations, *extra_frames), settings.screen)
        self.frames = Frames(num_games, keys)
        self.observer = Observer(observations, self.frames, settings.screen)
        self.games = [settings.make(self.frames.views(i)) for i in range(num_games)]
        self._terminal_time_limit = settings.reference_time_limit
        self._seed, self._stream = seed, stream
        self._next_episode = next_episode or _counter()
        self._stepping = stepping if stepping is not None else [0]
        self._counts = [0] * num_games  # times each game's message was seen
        self.first = np.ones(num_games, bool)  # [E] whether the frame is an episode's first
        self._any_first = True
        self.finished: list[tuple[int, EpisodeInfo]] = []  # by the last step, with the game's index

    def open_rows(self, rows: dict[str, np.ndarray]) -> Rows:
        """The rows in the form in which `observe` and `step` write them."""
        return open_rows(rows)

    def replace_games(self, by: Callable[[Any], Any]) -> None:
        """Replaces each game by `by(game)`, a wrapper with the same interface. Optional for a vector."""
        self.games[:] = map(by, self.games)

    def reset(self) -> None:
        """Starts an episode in every game."""
        for index in range(len(self.games)):
            self._stepping[0] = index + 1
            self._start(index)
        self.first[:] = self._any_first = True

    def seed_of(self, episode: int) -> GameSeed:
        """Seeds of an episode of this vector."""
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
        """Writes what the players see now into rows made by `observations.open_rows`."""
        self.observer.observe(rows, self._counts)

    def step(self, actions: Iterable[int], rows: Rows) -> None:
        """Plays one action per game, records it (`world.step_specs` and event_* rows), and starts new episodes.

        `terminated` and `truncated` are only written where they are true: their rows must come in cleared.
        """
        stepping = self._stepping
        counts, rewards, ends = self._counts, rows["reward"], {}
        for index, (game, action) in enumerate(zip(self.games, actions, strict=True)):
            stepping[0] = index + 1
            rewards[index] = game.step(action)
            counts[index] = game.message_count
            if game.end:
                ends[index] = game.last_frame
        self.observer.record_events(rows, counts, ends)
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
        """Closes the games."""
        for game in self.games:
            with contextlib.suppress(OSError, SystemExit):
                game.close()


def _counter() -> Callable[[int], int]:
    numbers = iter(range(2**62))
    return lambda _: next(numbers)
