"""NetHack as a world (`envs/world.py`): its part of the config, groups of games in lock-step, and the world itself.

`FrameWorld` is the base class of worlds with NetHack's frames. Copies and scaling of frames are done once per step for
all games of a group, after all have moved.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.config.table import Flag, Number, Text, Whole, deciding, table_of, value
from motif_jax.envs.nethack import engine, observations
from motif_jax.envs.nethack.engine import WHEEL_LIBRARY, Library, find_library
from motif_jax.envs.nethack.game import MEANINGS, ExtendedGame, NetHackGame
from motif_jax.envs.nethack.observations import SCREENS, SHOWN, FrameGame, Observer, open_rows
from motif_jax.envs.nethack.tasks import PENALTIES, check_character, get_task
from motif_jax.envs.own_code import TASK_FLAG, load_class
from motif_jax.envs.sequential import SequentialVector
from motif_jax.envs.world import CHOICE, WAIT, Rows, Screen, World, cannot_play
from motif_jax.names import find
from motif_jax.structs import EndStatus, UserError

AUTO, WHEEL = "auto", "wheel"  # of `engine`
GAMES = {"toy": "motif_jax.envs.toy:ToyGame"}  # tasks that are other games with NetHack's frames


@dataclass(frozen=True)
class GameSettings:
    """NetHack."""

    task: str = deciding("score", Text(), "a task, toy, or module:Class for a game of your own")
    screen: str = deciding(
        "terminal", Text(tuple(SCREENS)), "source of the crop; map is a quarter faster and has no text"
    )
    max_episode_steps: int = deciding(5000, Whole(1), "time limit of episodes, in any world")
    penalty_mode: str = deciding(
        "constant", Text(tuple(PENALTIES)), "how the penalty for steps without game time grows"
    )
    # Doubled a hundred times, float32 still holds it.
    penalty_step: float = deciding(-0.01, Number(-1e6, 1e6), "penalty for a step without game time")
    character: str = deciding("mon-hum-neu-mal", Text(), "role, race, alignment and gender; @: drawn for each episode")
    actions: str = deciding(
        "basic", Text(("basic", "extended")), "basic: the 23 of Motif; extended: the 28 of ONI (docs/games.md)"
    )
    no_progress_steps: int = deciding(
        0, Whole(), "truncate an episode after this many consecutive steps without game time; 0: no limit"
    )
    stairs_message: bool = deciding(False, Flag(), "a step onto stairs down shows the message of the look command")
    engine: str = value(
        AUTO, Text((AUTO, WHEEL)), "auto: the library that launch/engine.sh has built, if it has; wheel: NLE's own"
    )
    reference_time_limit: bool = deciding(
        False,
        Flag(),
        "the time limit counts as a termination, not as a truncation",
        differs="an episode that the time limit cuts does not count as a death",
    )
    reference_sober: bool = deciding(
        False,
        Flag(),
        "hallucinating and levitating counts as sober",
        differs="a hallucinating hero is not sober, also together with other conditions",
    )
    reference_extended: bool = deciding(False, Flag(), "the extended actions have the errors of ONI's release")
    library: str = ""  # a file instead of the one that `engine` finds

    def check(self) -> None:
        for name, declared in table_of(GameSettings).items():
            declared.kind.check(name, f"--config.env.{name}", getattr(self, name))
        if self.other_game is None:
            get_task(self.task)
        elif self.actions != "basic":
            what = f"the actions {self.actions!r} are NetHack's, not of the game {self.task!r}"
            raise UserError(f"{what} (--config.env.actions, --config.env.task)")
        check_character(self.character)

    @property
    def is_nethack(self) -> bool:
        return ":" not in self.task and self.task not in GAMES

    @property
    def other_game(self) -> Any:
        return load_class(self.task, "game", TASK_FLAG) if ":" in self.task else find(GAMES, self.task)

    @property
    def engine_library(self) -> Library:
        """The library that games load, unless `library` names one."""
        return WHEEL_LIBRARY if self.engine == WHEEL else find_library()

    @property
    def action_names(self) -> tuple[str, ...]:
        game = self.other_game or self.nethack_game
        if not hasattr(game, "num_actions"):
            raise UserError(f"the game {self.task!r} does not say its `num_actions` ({TASK_FLAG})")
        names, number = self.nethack_game.names, int(game.num_actions)
        return names if number == len(names) else tuple(map(str, range(number)))

    @property
    def nethack_game(self) -> type[NetHackGame]:
        return ExtendedGame if self.actions == "extended" else NetHackGame

    def make(self, buffers: dict[str, np.ndarray]) -> FrameGame:
        if other := self.other_game:
            limit = {"max_episode_steps": self.max_episode_steps} if self.task in GAMES else {}
            return other(buffers, **limit)
        return self.nethack_game(self, buffers, self.library or self.engine_library.path)


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
                game.message = text = bytes(game._message).rstrip(b"\0")
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
        self, count: int, settings: GameSettings, names: Iterable[str], extra_frames: Iterable[str] = (), **options: Any
    ):
        self.observer = Observer(count, names, settings.screen, extra_frames)
        games: list[Any] = [settings.make(self.observer.views(index)) for index in range(count)]
        super().__init__(games, (), **options)
        self._terminal_time_limit = settings.reference_time_limit
        self._counts = np.zeros(count, np.int32)  # message counts
        alike = all(type(game) is NetHackGame and game._is_score and game._constant_penalty for game in games)
        play = engine.find_group(games[0].library) if alike else None
        self._loop = Loop(play, games, self._stepping, self._counts) if play else None
        self._all = [ALL] * count

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


# The world.

FRAME_WORLDS = ("nethack", "toy")  # with the same observations


class ShownGame:
    """Implements `world.Game` with a game that writes frames; it has a screen if SHOWN are among them."""

    def __init__(self, game: FrameGame):
        self._game = game

    def __getattr__(self, name: str) -> Any:
        return getattr(self._game, name)

    @property
    def cause(self) -> str:
        return getattr(self._game, "cause", "")

    def screen(self) -> Screen:
        frame = self._game.last_frame if self._game.end else self._game.buffers
        return Screen(frame["tty_chars"], frame["tty_colors"].view(np.uint8), frame["tty_cursor"])


class FrameWorld(World):
    """A world whose games write NetHack's frames."""

    action = CHOICE
    specs = observations.OBSERVATIONS | observations.EVENTS
    numbers, viewpoints, still = observations.NUMBERS, observations.VIEWPOINTS, observations.STILL
    reads = ("crop", "blstats", "message")
    pairs = ("message", "blstats")
    texts = Path(__file__).parent / "texts"
    screen_frames = SHOWN  # `extra_frames` for `with_screen`
    with_screen = ShownGame  # makes a game of the vector one with a screen
    has_one_screen = False  # whatever the config's `screen` says

    def __init__(self, settings: GameSettings):
        self.settings = settings

    def vector(self, num_games: int, observations: tuple[str, ...], **options: Any) -> GameVector:
        return GameVector(num_games, self.settings, observations, **options)

    def game(self, shown: bool = True) -> Any:
        # Without SHOWN if nobody looks, because they slow down the engine.
        observer = Observer(1, (), self.settings.screen, SHOWN if shown else ())
        return ShownGame(self.settings.make(observer.views(0)))

    def plays(self, metadata: Mapping[str, Any]) -> str:
        reason, screen = cannot_play(metadata, self, *FRAME_WORLDS), metadata["config"]["env"].get("screen")
        if reason or self.has_one_screen or screen == self.settings.screen:
            return reason
        return f"has learnt to read the screen {screen!r}, not {self.settings.screen!r}"


class NetHackWorld(FrameWorld):
    """NetHack with a task, or another game with NetHack's frames that `task` names."""

    name = "nethack"
    about = "the game NetHack"
    players = ("random", "explorer")
    packages = ("nle",)

    @classmethod
    def of_section(cls, env: Mapping[str, Any]) -> NetHackWorld:
        return cls(GameSettings(**{key: env[key] for key in table_of(GameSettings) if key in env}))

    @staticmethod
    def title(env: Mapping[str, Any]) -> str:
        return str(env["task"])

    def __init__(self, settings: GameSettings):
        super().__init__(settings)
        self.action_names, self.figures = settings.action_names, settings.nethack_game.figures
        self.meanings = tuple(one for one in MEANINGS if one.name in self.figures)
        self.character = settings.character  # the hero's role, race, alignment and gender, as datasets record them

    @property
    def library(self) -> str:
        return self.settings.engine_library.description if self.settings.is_nethack else ""

    @staticmethod
    def own_game(env: Mapping[str, Any]) -> tuple[str, str] | None:
        return (f"the game {env['task']!r}", TASK_FLAG) if ":" in env.get("task", "") else None

    def scripted(self, name: str) -> Any:
        from motif_jax.envs.nethack.explorer import ExplorerPlayer  # slow to import: it reads NetHack's tables

        return ExplorerPlayer()

    def check(self) -> None:
        self.settings.check()
