"""Many games of NetHack in lock-step; copies and scaling are done once per step for all games, after all have moved."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from motif_jax.envs.nethack import engine
from motif_jax.envs.nethack.game import NetHackGame
from motif_jax.envs.nethack.game_settings import GameSettings
from motif_jax.envs.nethack.keys import NUL
from motif_jax.envs.nethack.observations import Frames, Observer, frame_keys, open_rows
from motif_jax.envs.sequential import SequentialVector
from motif_jax.envs.world import WAIT, Rows, SeedStream
from motif_jax.structs import EndStatus

# A step of a group of games in one call of C, for most steps: launch/engine/faster/group.c, in libraries built here.
#
# `GameVector` steps games in Python where there is no such library, and in both cases those that the call leaves.

NOTHING, MESSAGE, ACCOUNT, ALL = range(4)  # what is left of a game's step: to count its message; all but its key; all


class Account(ctypes.Structure):
    """A game, as `group.c` declares it."""

    _fields_ = [
        (name, kind)
        for kind, names in (
            (ctypes.c_void_p, "step context observation blstats glyphs message internal program_state"),
            (ctypes.c_void_p, "last_blstats last_glyphs"),
            (ctypes.c_long, "stairs_message max_steps patience"),
            (ctypes.c_long, "asked steps frozen score turns level branch stairs_level without_message"),
            (ctypes.c_double, "penalty episode_return"),
        )
        for name in names.split()
    ]


class Loop:
    """Steps a group of games."""

    def __init__(self, play: Any, games: Sequence[NetHackGame], stepping: Any, counts: np.ndarray):
        """`play`: of `engine.find_group`. It writes `stepping[0]`, and `counts`, those of the games' messages."""
        self._games, self._counts = games, memoryview(counts)
        self._accounts = (Account * len(games))(*map(_new_account, games))
        self._actions, self._rewards = np.zeros(len(games), np.int64), np.zeros(len(games), np.float32)
        self._left = np.zeros(len(games), np.int8)
        current = np.zeros(1, np.int64) if isinstance(stepping, list) else np.frombuffer(stepping, np.int64)
        self._arrays = np.array(games[0].keys, np.int32), self._actions, current, self._rewards, counts, self._left
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in self._arrays]
        sizes = ctypes.c_long(len(games)), ctypes.c_long(len(games[0].keys))
        self._play = functools.partial(play, *sizes, self._accounts, *pointers)

    def step(self, actions: Sequence[int], rewards: Any) -> list[int]:
        """Steps the games as far as it can, writes the rewards of finished steps, and returns what is left of each."""
        self._actions[:] = actions
        self._play()
        rewards[:] = self._rewards
        left = self._left.tolist()
        for index, (game, what) in enumerate(zip(self._games, left, strict=True)):
            if what == NOTHING:
                game.message = b""
            elif what == MESSAGE:
                game.message = text = bytes(game._message).rstrip(NUL)
                counts = game.message_counts
                self._counts[index] = counts[text] = counts.get(text, 0) + 1
        return left

    def load(self, index: int) -> None:
        """Tells a game what the calls have counted."""
        game, account = self._games[index], self._accounts[index]
        game._asked, game.steps, game._frozen = account.asked, account.steps, account.frozen
        game._score, game._turns, game.episode_return = account.score, account.turns, account.episode_return
        game.message_counts[b""] = account.without_message

    def store(self, index: int) -> None:
        """Takes over what a game has counted, and its engine."""
        game, account = self._games[index], self._accounts[index]
        account.step, account.context, account.observation = game.addresses
        account.steps, account.frozen, account.level = game.steps, game._frozen, game._max_level
        account.score, account.turns, account.episode_return = game._score, game._turns, game.episode_return
        account.branch, account.stairs_level = game._here
        account.without_message = game.message_counts.get(b"", 0)


def _new_account(game: NetHackGame) -> Account:
    return Account(
        stairs_message=game._stairs_message,
        max_steps=game._max_steps,
        patience=game._patience,
        penalty=game._penalty_step,
        **{name: game.buffers[name].ctypes.data for name in ("blstats", "glyphs", "message")},
        **{name: array.ctypes.data for name, array in game._state.items()},
        **{f"last_{name}": game.last_frame[name].ctypes.data for name in ("blstats", "glyphs")},
    )


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
        games: list[Any] = [settings.make(self.frames.views(index)) for index in range(num_games)]
        super().__init__(games, (), seed=seed, stream=stream, **options)
        self._terminal_time_limit = settings.reference_time_limit
        self._counts = np.zeros(num_games, np.int32)  # message counts
        alike = all(type(game) is NetHackGame and game._is_score and game._constant_penalty for game in games)
        play = engine.find_group(games[0].library) if alike else None
        self._loop = Loop(play, games, self._stepping, self._counts) if play else None
        self._all = [ALL] * num_games

    def replace_games(self, by: Callable[[Any], Any]) -> None:
        super().replace_games(by)
        self._loop = None

    def open_rows(self, rows: dict[str, np.ndarray]) -> Rows:
        return open_rows(rows)

    def _start(self, index: int) -> None:
        super()._start(index)
        self._take_over(index)

    def _take_over(self, index: int) -> None:
        self._counts[index] = self.games[index].message_count
        if self._loop:
            self._loop.store(index)

    def play_on(self, index: int, chances: Iterable[float]) -> None:
        if self._loop:
            self._loop.load(index)
        super().play_on(index, chances)
        self._take_over(index)

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
