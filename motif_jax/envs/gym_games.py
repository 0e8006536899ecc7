"""A game of a `GymWorld`, which can be shown."""

from __future__ import annotations

import contextlib
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from motif_jax.captions import WIDTH
from motif_jax.envs.drawing import GREY, Pieces, Row, draw_screen
from motif_jax.envs.gym_spaces import Field
from motif_jax.envs.own_code import WORLD_FLAG
from motif_jax.envs.seeding import GameSeed
from motif_jax.envs.world import Screen
from motif_jax.structs import EndStatus, EpisodeInfo, UserError

SEEDS = 2**31  # environments take seeds below; whether a seed is odd, which tells training from evaluation, is kept
COLOURS = 16  # that a world's screen may have
ENDED = "the game ended"  # without success


class Playable(Protocol):
    """What a game asks of its world."""

    name: str
    figures: Mapping[str, type]

    @property
    def fields(self) -> Mapping[str, Field]: ...
    @property
    def action_names(self) -> tuple[str, ...]: ...
    @property
    def time_limit(self) -> int: ...
    def make(self) -> Any: ...
    def caption(self, observation: Any, env: Any) -> str: ...
    def measure(self, env: Any) -> Sequence[float]: ...
    def screen(self, env: Any) -> Sequence[Row]: ...
    def succeeded(self, reward: float, env: Any) -> bool: ...


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keeps what environments print about themselves off the terminal."""
    with contextlib.redirect_stdout(io.StringIO()):
        yield


class GymGame:
    """One environment; see `world.Game`."""

    def __init__(self, world: Playable):
        """Makes the environment."""
        self._world, self._fields = world, world.fields
        with quiet():
            self._env = world.make()
        self._state = self._env.unwrapped
        self.num_actions = len(world.action_names)  # for scripted players
        self.seen: dict[str, np.ndarray] = {}  # the observations of the moment, by name

    def reset(self, seed: GameSeed, episode: int = 0) -> None:
        """Begins an episode."""
        with quiet():
            observation, _ = self._env.reset(seed=seed.core % SEEDS)
        self._episode, self._steps, self._return, self._success = episode, 0, 0.0, False
        self.end, self.cause = EndStatus.RUNNING, ""
        self._counts: dict[bytes, int] = {}
        self._look(observation)

    def step(self, action: int) -> float:
        """Plays one action; returns its reward."""
        observation, given, terminated, truncated, _ = self._env.step(int(action))
        reward = float(given)
        if not math.isfinite(reward):
            raise UserError(
                f"the world {self._world.name!r} gave the reward {reward}, which is not finite ({WORLD_FLAG})"
            )
        self._steps += 1
        self._return += reward
        if terminated:
            self._success = bool(self._world.succeeded(reward, self._state))
            self.end = EndStatus.TASK_SUCCESSFUL if self._success else EndStatus.ENDED
            self.cause = "" if self._success else ENDED
        elif truncated or self._steps >= self._world.time_limit:
            self.end = EndStatus.ABORTED
        self._look(observation)
        return reward

    def info(self) -> EpisodeInfo:
        """The episode so far."""
        values = tuple(self._world.measure(self._state)) if self._world.figures else ()
        if len(values) != len(self._world.figures) or not all(map(math.isfinite, values)):
            raise UserError(
                f"the world {self._world.name!r} must measure {', '.join(self._world.figures)}, a finite number each, "
                f"and gave {values} ({WORLD_FLAG})"
            )
        own = tuple(kind(value) for kind, value in zip(self._world.figures.values(), values, strict=True))
        return EpisodeInfo(self._episode, self._steps, self._return, int(self.end), self._success, own)

    def draw(self, chance: float) -> int:
        """The action for a number in [0, 1), all equally likely."""
        return int(chance * self.num_actions)

    def screen(self) -> Screen:
        """What the caption says, and below it the rows of the world's screen, in the middle."""
        drawn = [self._pieces(line) for line in self._world.screen(self._state)]
        return draw_screen(self.message.decode("latin-1"), drawn)

    def _pieces(self, line: Row) -> Pieces:
        """The pieces of a row of the screen with their colours."""
        pieces = [(line, GREY)] if isinstance(line, str) else list(line)
        for piece in pieces:
            match piece:
                case (str(), int(color)) if 0 <= color < COLOURS:
                    continue
            raise UserError(
                f"the screen of the world {self._world.name!r} must be rows of text, or of pieces of text with colours "
                f"from 0 to {COLOURS - 1}, not {piece!r} ({WORLD_FLAG})"
            )
        return pieces

    def close(self) -> None:
        """Closes the environment."""
        self._env.close()

    def _look(self, observation: Any) -> None:
        """Takes the observations of the moment, and what is said of it."""
        for name, field in self._fields.items():
            value = observation
            for key in field.path:
                value = value[key]
            array = np.asarray(field.convert(value))
            if array.shape != field.spec.shape:
                raise UserError(
                    f"the observation {name!r} of the world {self._world.name!r} has the shape {array.shape}, where "
                    f"its space says {field.spec.shape} ({WORLD_FLAG})"
                )
            self.seen[name] = array
        said = self._world.caption(observation, self._state)
        if not isinstance(said, str):
            raise UserError(f"the caption of the world {self._world.name!r} must be text, not {said!r} ({WORLD_FLAG})")
        self.message = said.strip().encode("latin-1", "replace").replace(b"\0", b"")[:WIDTH]
        self.message_count = self._counts[self.message] = self._counts.get(self.message, 0) + 1
        padded = np.frombuffer(self.message.ljust(WIDTH, b"\0"), np.uint8)
        self.seen |= {"message": padded, "message_count": np.array(self.message_count, np.int32)}
