"""NetHack as a world (`envs/world.py`), and a base class for worlds with NetHack's frames."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from motif_jax.envs.nethack.observations import EVENTS, OBSERVATIONS
from motif_jax.envs.nethack.settings import FrameSettings, GameSettings
from motif_jax.envs.nethack.shown import SCREEN_KEYS, ShownGame, screen_of
from motif_jax.envs.nethack.vector import GameVector
from motif_jax.envs.world import CHOICE, World, trained_world

FRAME_WORLDS = ("nethack", "toy")  # with the same observations


class FrameWorld(World):
    """A world whose games write NetHack's frames."""

    action = CHOICE
    specs = OBSERVATIONS | EVENTS
    reads = ("crop", "blstats", "message")
    pairs = ("message", "blstats")
    texts = Path(__file__).parent / "texts"
    screen_frames = SCREEN_KEYS  # `extra_frames` for `screen_of`
    screen_of = staticmethod(screen_of)

    def __init__(self, settings: FrameSettings):
        self.settings = settings

    def vector(
        self,
        num_games: int,
        observations: tuple[str, ...],
        *,
        seed: int,
        stream: int,
        next_episode: Callable[[int], int] | None = None,
        extra_frames: Iterable[str] = (),
        stepping: Any = None,
    ) -> GameVector:
        """See `World.vector`."""
        return GameVector(
            num_games,
            self.settings,
            observations,
            seed=seed,
            stream=stream,
            next_episode=next_episode,
            extra_frames=extra_frames,
            stepping=stepping,
        )

    def game(self, shown: bool = True) -> ShownGame:
        """See `World.game`."""
        return ShownGame(self.settings, shown)

    def plays(self, facts: Mapping[str, Any]) -> str:
        """See `World.plays`: the world, the number of actions and the screen must match."""
        if trained_world(facts) not in FRAME_WORLDS:
            return f"was trained in the world {trained_world(facts)!r}, not {self.name!r}"
        actions, screen = facts["model"]["num_actions"], facts["config"]["env"]["screen"]
        if actions != len(self.action_names):
            return f"has {actions} actions, where {self._title()} has {len(self.action_names)}"
        if screen != self.settings.screen:
            return f"has learnt to read the screen {screen!r}, not {self.settings.screen!r}"
        return ""

    def _title(self) -> str:
        return f"the world {self.name!r}"


class NetHackWorld(FrameWorld):
    """NetHack with a task, or another game with NetHack's frames that `task` names."""

    name = "nethack"
    about = "the game NetHack"
    players = ("random", "explorer")
    settings: GameSettings

    @property
    def action_names(self) -> tuple[str, ...]:  # type: ignore[override]
        """The names of the actions."""
        return self.settings.action_names

    @property
    def figures(self) -> Mapping[str, type]:  # type: ignore[override]
        """The numbers of an episode."""
        return self.settings.figures

    def check(self) -> None:
        """See `World.check`."""
        self.settings.check()

    def _title(self) -> str:
        return f"the game {self.settings.task!r}"
