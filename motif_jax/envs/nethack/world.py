"""NetHack as a world (`envs/world.py`), and a base class for worlds with NetHack's frames."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.config.table import table_of
from motif_jax.envs.nethack import observations
from motif_jax.envs.nethack.game_settings import GameSettings
from motif_jax.envs.nethack.observations import EVENTS, OBSERVATIONS, FrameGame, Frames, frame_keys
from motif_jax.envs.nethack.vector import GameVector
from motif_jax.envs.own_code import TASK_FLAG
from motif_jax.envs.world import CHOICE, Screen, World, trained_elsewhere

SCREEN_KEYS = ("tty_chars", "tty_colors", "tty_cursor")
FRAME_WORLDS = ("nethack", "toy")  # with the same observations


class ShownGame:
    """Implements `world.Game` with a game that writes frames; it has a screen if SCREEN_KEYS are among them."""

    def __init__(self, game: FrameGame):
        self._game = game

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # before `_game` exists
            raise AttributeError(name)
        return getattr(self._game, name)

    @property
    def cause(self) -> str:
        """The cause of death; "" while alive, or if unknown."""
        return getattr(self._game, "cause", "")

    def screen(self) -> Screen:
        frame = self._game.last_frame if self._game.end else self._game.buffers
        return Screen(frame["tty_chars"], frame["tty_colors"].view(np.uint8), frame["tty_cursor"])


class FrameWorld(World):
    """A world whose games write NetHack's frames."""

    action = CHOICE
    specs = OBSERVATIONS | EVENTS
    numbers, viewpoints, still = observations.NUMBERS, observations.VIEWPOINTS, observations.STILL
    reads = ("crop", "blstats", "message")
    pairs = ("message", "blstats")
    texts = Path(__file__).parent / "texts"
    screen_frames = SCREEN_KEYS  # `extra_frames` for `with_screen`
    with_screen = ShownGame  # makes a game of the vector one with a screen
    has_one_screen = False  # whatever the config's `screen` says

    def __init__(self, settings: GameSettings):
        self.settings = settings

    def vector(self, num_games: int, observations: tuple[str, ...], **options: Any) -> GameVector:
        return GameVector(num_games, self.settings, observations, **options)

    def game(self, shown: bool = True) -> Any:
        # Without SCREEN_KEYS if nobody looks, because they slow down the engine.
        keys = dict.fromkeys((*frame_keys((), self.settings.screen), *(SCREEN_KEYS if shown else ())))
        return ShownGame(self.settings.make(Frames(1, keys).views(0)))

    def plays(self, metadata: Mapping[str, Any]) -> str:
        """See `World.plays`: the world, the number of actions and the screen must match."""
        if reason := trained_elsewhere(metadata, self, *FRAME_WORLDS):
            return reason
        actions, screen = metadata["model"]["num_actions"], metadata["config"]["env"]["screen"]
        if actions != len(self.action_names):
            return f"has {actions} actions, but the world {self.name!r} has {len(self.action_names)}"
        if screen != self.settings.screen and not self.has_one_screen:
            return f"has learnt to read the screen {screen!r}, not {self.settings.screen!r}"
        return ""


class NetHackWorld(FrameWorld):
    """NetHack with a task, or another game with NetHack's frames that `task` names."""

    name = "nethack"
    about = "the game NetHack"
    players = ("random", "explorer")
    engine = True  # each game has a copy of NetHack's engine
    packages = ("nle",)

    @classmethod
    def of_section(cls, env: Mapping[str, Any]) -> NetHackWorld:
        return cls(GameSettings(**{key: env[key] for key in table_of(GameSettings) if key in env}))

    @staticmethod
    def title(env: Mapping[str, Any]) -> str:
        return str(env["task"])

    def __init__(self, settings: GameSettings):
        super().__init__(settings)
        self.action_names, self.figures = settings.action_names, settings.figures
        self.character = settings.character  # the hero's role, race, alignment and gender, as datasets record them
        self.protocols = ("challenge", "balrog_nethack") if settings.is_nethack else ()

    @property
    def library(self) -> str:
        return self.settings.engine_library.description if self.settings.is_nethack else ""

    @staticmethod
    def own_game(env: Mapping[str, Any]) -> tuple[str, str] | None:
        """See `World`: `task` may name a user's game with NetHack's frames."""
        return (f"the game {env['task']!r}", TASK_FLAG) if ":" in env.get("task", "") else None

    def scripted(self, name: str) -> Any:
        from motif_jax.envs.nethack.explorer import ExplorerPlayer  # slow to import: it reads NetHack's tables

        return ExplorerPlayer()

    def check(self) -> None:
        self.settings.check()
