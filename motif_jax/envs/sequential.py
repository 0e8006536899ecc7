"""Games that are stepped one after another, and worlds of such games; each game has its observations in `seen`."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from motif_jax.captions import WIDTH
from motif_jax.envs.world import WAIT, GameSeed, Rows, SeedStream, cannot_play, game_seed
from motif_jax.structs import EndStatus, EpisodeInfo


class SequentialGame:
    """Accounts for one episode: steps, rewards, captions. Subclasses set `seen`, `end` and `cause`."""

    num_actions: int

    def start_episode(self, episode: int) -> None:
        self._episode, self._steps, self._return, self._success = episode, 0, 0.0, False
        self.end, self.cause = EndStatus.RUNNING, ""
        self._counts: dict[bytes, int] = {}  # of captions

    def count_step(self, reward: float) -> None:
        self._steps += 1
        self._return += reward

    def finish(self, success: bool, cause: str) -> None:
        """Ends the episode, not by a limit; `cause` is of a failure."""
        self._success, self.cause = success, "" if success else cause
        self.end = EndStatus.TASK_SUCCESSFUL if success else EndStatus.ENDED

    def show_caption(self, caption: bytes) -> dict[str, np.ndarray]:
        """Makes this the current caption; returns its observations."""
        self.message = caption
        self.message_count = self._counts[caption] = self._counts.get(caption, 0) + 1
        padded = np.frombuffer(caption.ljust(WIDTH, b"\0"), np.uint8)
        return {"message": padded, "message_count": np.array(self.message_count, np.int32)}

    def draw(self, chance: float) -> Any:
        """Returns the action for a number in [0, 1), all equally likely."""
        return int(chance * self.num_actions)

    def measure(self) -> tuple[float, ...]:
        return ()

    def info(self) -> EpisodeInfo:
        return EpisodeInfo(self._episode, self._steps, self._return, int(self.end), self._success, self.measure())

    def close(self) -> None:
        """Nothing to free."""


class SequentialVector:
    """Implements `world.Vector`; see the module docstring."""

    can_wait = True  # skips the action WAIT

    def __init__(
        self,
        games: Iterable[Any],
        observations: Iterable[str],
        *,
        seed: int = 0,
        stream: int = SeedStream.TRAIN,
        next_episode: Callable[[int], int] | None = None,
        stepping: Any = None,
    ):
        """Takes games with `draw`, and with current observations by name in `seen`; see `World.vector` for the rest."""
        self.games: list[Any] = list(games)
        names = tuple(observations)
        self._plain = [name for name in names if not name.startswith("event_")]
        self._events = [(name, name.removeprefix("event_")) for name in names if name.startswith("event_")]
        self.seed, self.stream = seed, stream
        numbers = itertools.count()
        self._next_episode = next_episode or (lambda _: next(numbers))
        self._stepping = stepping if stepping is not None else [0]
        self.before_step: Callable[[Sequence[Any]], None] | None = None  # takes all actions of a step
        self.first = np.ones(len(self.games), bool)
        self.finished: list[tuple[int, EpisodeInfo]] = []

    def open_rows(self, rows: dict[str, np.ndarray]) -> Rows:
        return rows

    def replace_games(self, by: Callable[[Any], Any]) -> None:
        """Replaces each game by `by(game)`, a wrapper with the same interface. Not every vector has this method."""
        self.games[:] = map(by, self.games)

    def reset(self) -> None:
        for index in range(len(self.games)):
            self._start(index)
        self.first[:] = True

    def seed_of(self, episode: int) -> GameSeed:
        return game_seed(self.seed, self.stream, episode)

    def _start(self, index: int) -> None:
        self._stepping[0] = index + 1
        episode = self._next_episode(index)
        self.games[index].reset(self.seed_of(episode), episode)

    def play_on(self, index: int, chances: Iterable[float]) -> None:
        """Steps one game without recording: an action per number in [0, 1), all equally likely."""
        game = self.games[index]
        for chance in chances:
            self._stepping[0] = index + 1
            game.step(self.draw(game, chance))
            if game.end:
                self._start(index)

    def draw(self, game: Any, chance: float) -> Any:
        return game.draw(chance)

    def observe(self, rows: Rows) -> None:
        for index, game in enumerate(self.games):
            for name in self._plain:
                rows[name][index] = game.seen[name]

    def step(self, actions: Sequence[Any], rows: Rows) -> None:
        """Plays one action per game and records the step, then begins a new episode in games whose episode ended.

        Only true values of `terminated` and `truncated` are written: clear their rows before the call.
        """
        if self.before_step:
            self.before_step(actions)
        self.first[:] = False
        self.finished = []
        for index, (game, action) in enumerate(zip(self.games, actions, strict=True)):
            self._stepping[0] = index + 1
            waits = isinstance(action, int) and action == WAIT
            rows["reward"][index] = 0.0 if waits else game.step(action)
            for event, name in self._events:
                rows[event][index] = game.seen[name]
            if game.end:
                self._end_episode(index, rows, cut=game.end == EndStatus.ABORTED)

    def _end_episode(self, index: int, rows: Rows, cut: bool) -> None:
        """Records the end of a game's episode, `cut` if by a limit, and begins the next."""
        rows["truncated" if cut else "terminated"][index] = True
        self.finished.append((index, self.games[index].info()))
        self.first[index] = True
        self._start(index)

    def close(self) -> None:
        for game in self.games:
            with contextlib.suppress(Exception, SystemExit):
                game.close()


class SequentialWorld:
    """`World.vector` of worlds whose games have `seen`."""

    specs: Any
    screen_frames: tuple[str, ...] = ("screen",)  # `extra_frames` for games that are shown

    def game(self, shown: bool = True) -> Any:
        raise NotImplementedError

    def check(self) -> None:
        """Plays a step in a game; raises UserError if something in it is wrong."""
        with contextlib.closing(self.game(shown=False)) as game:  # playing does not need rendering
            game.reset(game_seed(0, SeedStream.TRAIN, 0), 0)
            game.step(game.draw(0.0))
            for name in self.specs:
                game.seen[name.removeprefix("event_")]
            game.info()
            game.screen()

    def plays(self, metadata: Mapping[str, Any]) -> str:
        return cannot_play(metadata, self)

    def prepare(self, vector: SequentialVector) -> None:
        """Receives a new group, before its first episodes."""

    def vector(
        self, num_games: int, observations: tuple[str, ...], *, extra_frames: Iterable[str] = (), **options: Any
    ) -> SequentialVector:
        games = [self.game(shown=self.screen_frames[0] in extra_frames) for _ in range(num_games)]
        vector = SequentialVector(games, observations, **options)
        self.prepare(vector)
        return vector
