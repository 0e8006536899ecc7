"""Many games in lock-step: actions in, one row of observations out, a new episode where one ended.

What can be done for all games at once (copies, scaling) is done once per step, after all games have moved.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

import numpy as np

from motif_jax.config_table import Flag, Number, Table, Text, Value, Whole
from motif_jax.envs.observations import SCREENS, Frames, Observer, Rows, frame_keys
from motif_jax.envs.seeding import GameSeed, SeedStream, game_seed
from motif_jax.envs.tasks import PENALTY_MODES, check_character, get_task
from motif_jax.structs import ArraySpec, EndStatus, EpisodeInfo, UserError

# What is known of every step, whichever observations are asked for.
STEP_SPECS = {
    "action": ArraySpec((), "int32"),
    "reward": ArraySpec((), "float32"),
    "terminated": ArraySpec((), "bool"),
    "truncated": ArraySpec((), "bool"),
}

TABLE: Table = {  # of the config's section `env`, which is `GameSettings`
    "task": Value(Text(), decides=True),
    "screen": Value(Text(tuple(SCREENS)), decides=True),
    "max_episode_steps": Value(Whole(1), decides=True),
    "penalty_mode": Value(Text(PENALTY_MODES), decides=True),
    "penalty_step": Value(Number(-1e6, 1e6), decides=True),  # doubled a hundred times, float32 still holds it
    "character": Value(Text(), decides=True),
    "reference_time_limit": Value(
        Flag(),
        decides=True,
        differs="an episode that the time limit cuts is no death",
    ),
    "reference_sober": Value(
        Flag(),
        decides=True,
        differs="whoever hallucinates is not sober, also together with other conditions",
    ),
}


class Game(Protocol):
    """A game that writes its frames into buffers: NetHack, the toy world, or one of yours."""

    num_actions: int
    buffers: dict[str, np.ndarray]
    end: EndStatus
    message: bytes
    message_count: int
    last_frame: dict[str, np.ndarray]

    def reset(self, seed: GameSeed, episode: int) -> None: ...
    def step(self, action: int) -> float: ...
    def info(self) -> EpisodeInfo: ...
    def close(self) -> None: ...


class GameSettings(NamedTuple):
    """How games are made; `config.env` as plain values, so that it can be sent to a worker."""

    task: str = "score"  # a task, "toy", or "module:Class" for a game of your own
    screen: str = "terminal"  # crop from the "terminal" (as published) or from the "map" (faster, no text in it)
    max_episode_steps: int = 5000
    penalty_mode: str = "constant"
    penalty_step: float = -0.01
    character: str = "mon-hum-neu-mal"
    reference_time_limit: bool = False  # the time limit is a true end
    reference_sober: bool = False  # `NetHackGame`

    def check(self) -> None:
        """Raises UserError for invalid settings."""
        for name, value in TABLE.items():
            value.kind.check(name, f"--config.env.{name}", getattr(self, name))
        if ":" in self.task:
            self._own_class()
        elif self.task != "toy":
            get_task(self.task)
        check_character(self.character)

    @property
    def num_actions(self) -> int:
        """Actions of the game."""
        return int(self._own_class().num_actions) if ":" in self.task else 23  # type: ignore[attr-defined]

    def _own_class(self) -> Callable[[dict[str, np.ndarray]], Game]:
        module, _, name = self.task.partition(":")
        if not all(part.isidentifier() for part in (*module.split("."), name)):
            raise UserError(f"a game of your own is named module:Class, not {self.task!r} (--config.env.task)")
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise UserError(f"cannot use the game {self.task!r} (--config.env.task): {error}") from error

    def make(self, buffers: dict[str, np.ndarray]) -> Game:
        """One game that writes into `buffers`."""
        if self.task == "toy":
            from motif_jax.envs.toy import MAX_STEPS, ToyGame

            return ToyGame(buffers, max_episode_steps=min(self.max_episode_steps, MAX_STEPS))
        if ":" in self.task:
            return self._own_class()(buffers)
        from motif_jax.envs.nethack import NetHackGame

        return NetHackGame(
            get_task(self.task),
            buffers,
            max_episode_steps=self.max_episode_steps,
            penalty_mode=self.penalty_mode,
            penalty_step=self.penalty_step,
            reference_sober=self.reference_sober,
            character=self.character,
        )


class GameVector:
    """A group of games with their observations."""

    def __init__(
        self,
        num_games: int,
        settings: GameSettings,
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
        """Plays one action per game and records the step (STEP_SPECS and event_* rows), then starts new episodes.

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
            with contextlib.suppress(OSError):
                game.close()


def _counter() -> Callable[[int], int]:
    numbers = iter(range(2**62))
    return lambda _: next(numbers)
