"""NetHack's part of the config: which game is played, as what character, and what a step is rewarded."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from motif_jax.config.table import Flag, Number, Text, Whole, deciding, table_of, value
from motif_jax.envs.nethack.engine import WHEEL_LIBRARY, Library, find_library
from motif_jax.envs.nethack.extended import ExtendedGame
from motif_jax.envs.nethack.game import EXTENDED_FIGURES, FIGURES, NetHackGame
from motif_jax.envs.nethack.keys import ACTION_NAMES, EXTENDED_NAMES
from motif_jax.envs.nethack.observations import SCREENS, FrameGame
from motif_jax.envs.nethack.tasks import PENALTIES, check_character, get_task
from motif_jax.envs.own_code import TASK_FLAG, load_class
from motif_jax.names import import_named
from motif_jax.structs import UserError

ACTION_SETS = ("basic", "extended")
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
        "basic", Text(ACTION_SETS), "basic: the 23 of Motif; extended: the 28 of ONI (docs/games.md)"
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
        """Raises UserError for invalid settings."""
        for name, declared in table_of(GameSettings).items():
            declared.kind.check(name, f"--config.env.{name}", getattr(self, name))
        if ":" in self.task:
            load_class(self.task, "game", TASK_FLAG)
        elif self.is_nethack:
            get_task(self.task)
        if not self.is_nethack and self.actions != "basic":
            raise UserError(
                f"the actions {self.actions!r} are NetHack's: the game {self.task!r} has its own "
                "(--config.env.actions, --config.env.task)"
            )
        check_character(self.character)

    @property
    def is_nethack(self) -> bool:
        """Whether the task is one of NetHack's, rather than another game with its frames."""
        return ":" not in self.task and self.task not in GAMES

    @property
    def engine_library(self) -> Library:
        """The library that games load, unless `library` names one."""
        return WHEEL_LIBRARY if self.engine == WHEEL else find_library()

    @property
    def action_names(self) -> tuple[str, ...]:
        if self.actions == "extended":
            return EXTENDED_NAMES
        if ":" not in self.task:
            return ACTION_NAMES
        number = int(load_class(self.task, "game", TASK_FLAG).num_actions)
        return ACTION_NAMES if number == len(ACTION_NAMES) else tuple(map(str, range(number)))

    @property
    def figures(self) -> dict[str, type]:
        return EXTENDED_FIGURES if self.actions == "extended" else FIGURES

    def make(self, buffers: dict[str, np.ndarray]) -> FrameGame:
        """Makes a game that writes into `buffers`."""
        if self.task in GAMES:
            return import_named(GAMES[self.task])(buffers, max_episode_steps=self.max_episode_steps)
        if ":" in self.task:
            return load_class(self.task, "game", TASK_FLAG)(buffers)
        game = ExtendedGame if self.actions == "extended" else NetHackGame
        return game(self, buffers, self.library or self.engine_library.path)
