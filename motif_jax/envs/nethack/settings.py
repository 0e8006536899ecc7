"""NetHack's part of the config: which game is played, as what character, and what a step is rewarded."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from motif_jax.config.table import Flag, Number, Table, Text, Value, Whole
from motif_jax.envs.nethack.figures import EXTENDED_FIGURES, FIGURES
from motif_jax.envs.nethack.observations import SCREENS
from motif_jax.envs.nethack.tasks import PENALTY_MODES, check_character, get_task
from motif_jax.envs.own_code import TASK_FLAG, load_class
from motif_jax.envs.seeding import GameSeed
from motif_jax.structs import EndStatus, EpisodeInfo, UserError

ACTION_SETS = ("basic", "extended")
GAMES = {"toy": "motif_jax.envs.toy:ToyGame"}  # tasks that are other games with NetHack's frames
TABLE: Table = {  # NetHack's values of the config's section `env`
    "task": Value(Text(), decides=True),
    "screen": Value(Text(tuple(SCREENS)), decides=True),
    "max_episode_steps": Value(Whole(1), decides=True),  # of every world's episodes
    "penalty_mode": Value(Text(PENALTY_MODES), decides=True),
    "penalty_step": Value(Number(-1e6, 1e6), decides=True),  # doubled a hundred times, float32 still holds it
    "character": Value(Text(), decides=True),
    "actions": Value(Text(ACTION_SETS), decides=True, older="basic"),
    "no_progress_steps": Value(Whole(), decides=True, older=0),
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
    "reference_extended": Value(Flag(), decides=True, older=False),
}


class FrameGame(Protocol):
    """A game that writes NetHack's frames into buffers: NetHack, the toy game, or one of yours."""

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


class FrameSettings(Protocol):
    """How games with NetHack's frames are made, and shown to their players."""

    @property
    def screen(self) -> str: ...
    @property
    def reference_time_limit(self) -> bool: ...
    def make(self, buffers: dict[str, np.ndarray]) -> FrameGame: ...


class GameSettings(NamedTuple):
    """How games are made: NetHack's values of the config's section `env`, and the time limit, as plain values."""

    task: str = "score"  # a task, one of GAMES, or "module:Class" for a game of your own
    screen: str = "terminal"  # crop from the "terminal" (as published) or from the "map" (faster, no text in it)
    max_episode_steps: int = 5000
    penalty_mode: str = "constant"
    penalty_step: float = -0.01
    character: str = "mon-hum-neu-mal"
    actions: str = "basic"  # the 23 of Motif, or with "extended" the 28 of ONI: `extended.py`
    no_progress_steps: int = 0  # steps without game time after which an episode is cut; 0: none
    reference_time_limit: bool = False  # the time limit is a true end
    reference_sober: bool = False  # `NetHackGame`
    reference_extended: bool = False  # the extended actions with the errors of ONI's release: `extended.py`

    def check(self) -> None:
        """Raises UserError for invalid settings."""
        for name, value in TABLE.items():
            value.kind.check(name, f"--config.env.{name}", getattr(self, name))
        own = ":" in self.task or self.task in GAMES
        if ":" in self.task:
            self._load(self.task)
        elif not own:
            get_task(self.task)
        if own and self.actions != "basic":
            raise UserError(
                f"the actions {self.actions!r} are NetHack's: the game {self.task!r} has its own "
                "(--config.env.actions, --config.env.task)"
            )
        check_character(self.character)

    @property
    def action_names(self) -> tuple[str, ...]:
        """What the player can choose from."""
        from motif_jax.envs.nethack.keys import ACTION_NAMES, EXTENDED_NAMES

        if self.actions == "extended":
            return EXTENDED_NAMES
        number = len(ACTION_NAMES)
        if ":" in self.task:
            number = int(self._load(self.task).num_actions)
        return ACTION_NAMES if number == len(ACTION_NAMES) else tuple(map(str, range(number)))

    @property
    def figures(self) -> dict[str, type]:
        """The figures of an episode."""
        return EXTENDED_FIGURES if self.actions == "extended" else FIGURES

    def _load(self, name: str) -> Any:
        return load_class(name, "game", TASK_FLAG)

    def make(self, buffers: dict[str, np.ndarray]) -> FrameGame:
        """One game that writes into `buffers`."""
        if self.task in GAMES:
            return self._load(GAMES[self.task])(buffers, max_episode_steps=self.max_episode_steps)
        if ":" in self.task:
            return self._load(self.task)(buffers)
        options: dict[str, Any] = {
            "max_episode_steps": self.max_episode_steps,
            "penalty_mode": self.penalty_mode,
            "penalty_step": self.penalty_step,
            "reference_sober": self.reference_sober,
            "character": self.character,
            "no_progress_steps": self.no_progress_steps,
        }
        if self.actions == "extended":
            from motif_jax.envs.nethack.extended import ExtendedGame

            return ExtendedGame(get_task(self.task), buffers, reference=self.reference_extended, **options)
        from motif_jax.envs.nethack.game import NetHackGame

        return NetHackGame(get_task(self.task), buffers, **options)
