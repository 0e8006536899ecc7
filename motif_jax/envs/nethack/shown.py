"""One game with NetHack's frames, replayed and shown."""

from __future__ import annotations

from typing import Any

import numpy as np

from motif_jax.envs.nethack.observations import Frames, frame_keys
from motif_jax.envs.nethack.settings import FrameSettings
from motif_jax.envs.seeding import GameSeed
from motif_jax.envs.world import Screen
from motif_jax.structs import EndStatus, EpisodeInfo

SCREEN_KEYS = ("tty_chars", "tty_colors", "tty_cursor")


class ShownGame:
    """Implements `world.Game` with a game that writes frames."""

    def __init__(self, settings: FrameSettings, shown: bool):
        """Makes the game; its frames have a screen only if `shown`, because a screen slows down the engine."""
        keys = dict.fromkeys((*frame_keys((), settings.screen), *(SCREEN_KEYS if shown else ())))
        self._game = settings.make(Frames(1, keys).views(0))

    @property
    def end(self) -> EndStatus:
        """The episode's end status."""
        return self._game.end

    @property
    def message(self) -> bytes:
        """The last message."""
        return self._game.message

    @property
    def message_count(self) -> int:
        """Times the last message was seen in this episode."""
        return self._game.message_count

    @property
    def cause(self) -> str:
        """The cause of death; "" while alive, or if unknown."""
        return getattr(self._game, "cause", "")

    def reset(self, seed: GameSeed, episode: int) -> None:
        """Begins an episode."""
        self._game.reset(seed, episode)

    def step(self, action: int) -> float:
        """Plays one action; returns its reward."""
        return self._game.step(action)

    def info(self) -> EpisodeInfo:
        """The episode so far."""
        return self._game.info()

    def screen(self) -> Screen:
        """The terminal."""
        return screen_of(self._game)

    def close(self) -> None:
        """Closes the game."""
        self._game.close()


def screen_of(game: Any) -> Screen:
    """Returns the terminal of a game whose frames have SCREEN_KEYS."""
    frame = game.last_frame if game.end else game.buffers
    return Screen(frame["tty_chars"], frame["tty_colors"].view(np.uint8), frame["tty_cursor"])
