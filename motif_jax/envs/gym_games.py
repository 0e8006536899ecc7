"""A game of a `GymWorld`, and the rendering of gymnasium environments as small pictures or coloured text."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from motif_jax.captions import WIDTH
from motif_jax.envs.drawing import GREY, Pieces, ScreenRow, draw_screen
from motif_jax.envs.gym_answers import RESET, STEP, AnswerChecks
from motif_jax.envs.gym_spaces import Field, Parts
from motif_jax.envs.seeding import GameSeed
from motif_jax.envs.world import Screen
from motif_jax.structs import EndStatus, EpisodeInfo

SIDE = 320  # maximum pixels of the longer side of a picture
QUALITY = 80  # of WebP, out of 100
REVERSED = 16  # added to a colour for reversed video
STYLE = re.compile(r"\033\[([\d;]{0,40})m")
OTHER = re.compile(r"\033\[[0-?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f]")  # other control sequences


def encode_picture(pixels: np.ndarray) -> bytes:
    """Encodes pixels, [height, width, 3] uint8, as WebP with sides of at most SIDE."""
    from PIL import Image  # slow to import, and most games are never shown

    picture = Image.fromarray(pixels)
    picture.thumbnail((SIDE, SIDE))
    packed = io.BytesIO()
    picture.save(packed, "WEBP", quality=QUALITY, method=2)
    return packed.getvalue()


def pieces_of_ansi(text: str) -> list[Pieces]:
    """Splits text with ANSI escape sequences into lines of pieces with their colours."""
    rows, color = [], GREY
    for line in text.strip("\n").split("\n"):
        pieces: Pieces = []
        for number, part in enumerate(STYLE.split(line)):
            if number % 2:
                color = _color(part, color)
            elif plain := OTHER.sub("", STYLE.sub("", part)):
                pieces.append((plain, color))
        rows.append(pieces)
    return rows


def _color(codes: str, color: int) -> int:
    """Returns the colour after SGR codes: 30 to 37 and 90 to 97 set the foreground, 40 to 47 and 100 to 107 reverse."""
    for code in map(int, filter(None, codes.split(";") if codes else ["0"])):
        ground, dark = divmod(code, 10)
        if code in (0, 39, 49):
            color = GREY
        elif code == 7:
            color |= REVERSED
        elif ground in (3, 9) and dark < 8:
            color = dark + 8 * (ground == 9)
        elif ground in (4, 10) and dark < 8:
            color = dark + 8 * (ground == 10) + REVERSED
    return color


SEEDS = 2**31  # exclusive limit of seeds; even, to keep the lowest bit, which separates training from evaluation
ENDED = "the game ended"  # without success


class Playable(Protocol):
    """The part of a world that its games use."""

    name: str
    figures: Mapping[str, type]

    @property
    def fields(self) -> Mapping[str, Field]: ...
    @property
    def action_names(self) -> tuple[str, ...]: ...
    @property
    def action_parts(self) -> Parts | None: ...
    @property
    def time_limit(self) -> int: ...
    def make(self) -> Any: ...
    def make_shown(self) -> Any: ...
    def caption(self, observation: Any, env: Any) -> str: ...
    def measure(self, env: Any) -> Sequence[float]: ...
    def screen(self, env: Any) -> Sequence[ScreenRow]: ...
    def succeeded(self, reward: float, env: Any) -> bool: ...


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppresses what environments print."""
    with contextlib.redirect_stdout(io.StringIO()):
        yield


class GymWorldGame:
    """One environment as a `world.Game`."""

    def __init__(self, world: Playable, shown: bool):
        """Makes the environment; it can render itself if `shown`."""
        self._world, self._fields, self._answers = world, world.fields, AnswerChecks(world.name)
        self._drawn = b""  # the last picture, unencoded
        self._trouble: list[Pieces] = []  # why a picture is missing
        with quiet():
            env = self._make_shown() if shown else None
            self._env = self._answers.environment(world.make() if env is None else env)
        self._draws = None if env is None else getattr(env, "render_mode", None)
        self._state = self._env.unwrapped
        self.num_actions, self._parts = len(world.action_names), world.action_parts
        self.seen: dict[str, np.ndarray] = {}  # current observations by name

    def _make_shown(self) -> Any:
        """Makes an environment that can render itself; on an error returns None, and the screen says why."""
        try:
            return self._world.make_shown()
        except Exception as error:
            self._trouble = _no_picture(error)
            return None

    def reset(self, seed: GameSeed, episode: int = 0) -> None:
        self._drawn = b""  # so that an episode begins with a picture
        with quiet():
            given = self._env.reset(seed=seed.core % SEEDS)
        observation, _ = self._answers.parts("reset()", RESET, given)
        self._episode, self._steps, self._return, self._success = episode, 0, 0.0, False
        self.end, self.cause = EndStatus.RUNNING, ""
        self._counts: dict[bytes, int] = {}
        self._look("reset()", observation)

    def step(self, action: Any) -> float:
        answers, parts = self._answers, self._parts
        played = self._env.step(parts.convert(action) if parts else int(action))
        observation, given, terminated, truncated, _ = answers.parts("step()", STEP, played)
        reward = answers.reward(given)
        terminated = answers.flag("step()", "terminated", terminated)
        truncated = answers.flag("step()", "truncated", truncated)
        self._steps += 1
        self._return += reward
        if terminated:
            success = self._world.succeeded(reward, self._state)
            self._success = answers.flag("succeeded()", "success", success)
            self.end = EndStatus.TASK_SUCCESSFUL if self._success else EndStatus.ENDED
            self.cause = "" if self._success else ENDED
        elif truncated or self._steps >= self._world.time_limit:
            self.end = EndStatus.ABORTED
        self._look("step()", observation)
        return reward

    def info(self) -> EpisodeInfo:
        figures = self._world.figures
        own = self._answers.figures(figures, self._world.measure(self._state)) if figures else ()
        return EpisodeInfo(self._episode, self._steps, self._return, int(self.end), self._success, own)

    def draw(self, chance: float) -> Any:
        """Returns the action for a number in [0, 1), all equally likely."""
        return self._parts.space.draw(chance) if self._parts else int(chance * self.num_actions)

    def screen(self) -> Screen:
        """Draws the caption, and below it the world's screen or the environment's text."""
        rows = self._answers.rows(self._world.screen(self._state)) + self._trouble
        if self._draws == "ansi" and (drawn := self._render()) is not None:
            rows = pieces_of_ansi(self._answers.text("render()", drawn))
        return draw_screen(self.message.decode("latin-1"), rows)

    def picture(self) -> bytes:
        """Returns the environment's picture as WebP; empty if it has not changed, or without pictures."""
        if self._draws != "rgb_array" or (given := self._render()) is None:
            return b""
        pixels = self._answers.pixels(given)
        if (drawn := repr(pixels.shape).encode() + pixels.tobytes()) == self._drawn:
            return b""
        self._drawn = drawn
        return encode_picture(pixels)

    def _render(self) -> Any:
        """Renders the environment; on an error returns None, and the screen says why."""
        try:
            with quiet():
                return self._env.render()
        except Exception as error:
            self._draws, self._trouble = None, _no_picture(error)
            return None

    def close(self) -> None:
        self._env.close()

    def _look(self, method: str, observation: Any) -> None:
        """Stores the observations that `method` returned, and their caption."""
        for name, field in self._fields.items():
            self.seen[name] = self._answers.array(method, name, field, observation)
        said = self._answers.text("caption()", self._world.caption(observation, self._state))
        self.message = said.strip().encode("latin-1", "replace").replace(b"\0", b"")[:WIDTH]
        self.message_count = self._counts[self.message] = self._counts.get(self.message, 0) + 1
        padded = np.frombuffer(self.message.ljust(WIDTH, b"\0"), np.uint8)
        self.seen |= {"message": padded, "message_count": np.array(self.message_count, np.int32)}


def _no_picture(error: Exception) -> list[Pieces]:
    return [[(f"no picture: {error}".splitlines()[0], GREY)]]
