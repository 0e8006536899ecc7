"""Any gymnasium environment as a world, given its id and a caption of what happens.

    class GoTo(GymWorld):
        id = "BabyAI-GoToLocal-v0"
        about = "a room in which a robot is sent to an object"
        kinds = {"image": "grid"}

        def caption(self, observation, env):
            return "You see a red ball."

`--config.env.world=module:GoTo` then plays it (docs/own-game.md).

Return values of the environment and of the subclass are validated in every step of every game, so each check begins
with a fast test that nearly all values pass. An error names the world, the method and the value.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import io
import math
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces

from motif_jax.captions import WIDTH, encode
from motif_jax.config.table import Whole, shown
from motif_jax.envs.drawing import GREY, Pieces, ScreenRow, draw_screen
from motif_jax.envs.own_code import WORLD_FLAG
from motif_jax.envs.sequential import SequentialGame, SequentialWorld
from motif_jax.envs.world import (
    CAPTIONS,
    CHOICE,
    ActionSpace,
    GameSeed,
    Screen,
    SeedStream,
    Viewpoint,
    game_seed,
    space_from,
    step_specs,
    suggest,
    trained_elsewhere,
    unreadable,
)
from motif_jax.structs import BYTE_VALUES, IMAGE_CHANNELS, MOST_CATEGORIES, ArraySpec, EndStatus, UserError

ALONE = "observation"  # the name of an observation outside a Dict
STEP = "(observation, reward, terminated, truncated, info)"
RESET = "(observation, info)"
LARGEST = float(np.finfo(np.float32).max)  # rewards are recorded as float32
MOST_PIXELS = 8192  # per side of a picture
COLOURS = 16  # of a world's screen
SIDE = 320  # maximum pixels of the longer side of a picture
QUALITY = 80  # of WebP, out of 100
REVERSED = 16  # added to a colour for reversed video
STYLE = re.compile(r"\033\[([\d;]{0,40})m")
PALETTE = re.compile(r"\b[345]8;(5;\d*|2;\d*;\d*;\d*)")
OTHER = re.compile(r"\033\[[0-?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f]")  # other control sequences
SEEDS = 2**31  # exclusive limit of seeds; even, to keep the lowest bit, which separates training from evaluation
ENDED = "the game ended"  # without success
RENDER_MODES = ("rgb_array", "ansi")  # supported ones, the preferred one first
AUTO = "auto"  # the first of RENDER_MODES that the environment has, unless the world draws its own screen
SUCCESS = 0.0  # an episode that terminates with a reward above this has succeeded
dtype_of = functools.cache(np.dtype)


# ---- spaces


class Field(NamedTuple):
    """One array of the observations."""

    path: tuple[str, ...]  # keys of the nested dictionaries
    spec: ArraySpec
    convert: Callable[[Any], Any]  # the environment's value -> an array-like that fits the spec


def fields_of(space: spaces.Space, kinds: Mapping[str, str], world: str) -> dict[str, Field]:
    """Returns the fields of an observation space by name; raises UserError for spaces that cannot be recorded.

    `kinds`: the user's kinds of some observations, by name (networks/kinds.py).
    """
    fields: dict[str, Field] = {}
    for path, leaf in _leaves(space, ()):
        name = "_".join(path) or ALONE
        if name in (CAPTIONS | step_specs()) or name.startswith("event_") or name in fields:
            raise UserError(
                f"the environment of the world {world!r} gives an observation called {name!r}, a name that is taken: "
                f"rename it with a wrapper ({WORLD_FLAG})"
            )
        field = _field(leaf, path, kinds.get(name, ""))
        if field is None:
            raise UserError(
                f"the world {world!r} cannot record the observation {name!r}, whose space is {type(leaf).__name__}: "
                f"make it a Box, a text, discrete values or a Dict of these with a wrapper ({WORLD_FLAG})"
            )
        fields[name] = field
    for name in kinds:
        if name not in fields:
            raise UserError(
                f"the world {world!r} declares the kind of the observation {name!r}, which its environment does not "
                f"give: it gives {', '.join(fields)} ({WORLD_FLAG})"
            )
    return fields


def _leaves(space: spaces.Space, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], spaces.Space]]:
    """Yields the spaces in nested dictionaries, with their paths."""
    if not isinstance(space, spaces.Dict):
        yield path, space
        return
    for key, inner in space.spaces.items():
        yield from _leaves(inner, (*path, str(key)))


class ActionParts(NamedTuple):
    """How a space of actions with several parts is recorded."""

    space: ActionSpace
    convert: Callable[[Any], Any]  # a recorded action -> the environment's


def action_parts_of(space: spaces.Space, world: str) -> ActionParts | None:
    """Returns the parts of a space of actions; None if it is Discrete. Raises UserError for other spaces."""
    if isinstance(space, spaces.Discrete) and space.start == 0:
        _check_choices(int(space.n), space, world)
        return None
    count = int(np.prod(space.shape)) if space.shape else 0
    if isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary) and count:
        sizes = getattr(space, "nvec", np.full(count, 2))  # without it: a MultiBinary
        _check_choices(sum(sizes.ravel().tolist()), space, world)
        start, shape, dtype = getattr(space, "start", 0), space.shape, space.dtype

        def shifted(action: Any) -> np.ndarray:
            return (np.reshape(action, shape) + start).astype(dtype)

        return ActionParts(ActionSpace(tuple(sizes.ravel().tolist())), shifted)
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating) and count:
        low, high, box = space.low, space.high, space
        with np.errstate(over="ignore", invalid="ignore"):
            bounds = np.float32(low), np.float32(high)
            width = bounds[1] - bounds[0]
        if not (np.isfinite(width) & (width > 0)).all():
            raise UserError(
                f"the actions of the world {world!r} must have bounds whose differences are positive and finite in "
                f"float32, not {space}: set them with a wrapper, such as gymnasium.wrappers.RescaleAction "
                f"({WORLD_FLAG})"
            )

        def clipped(action: Any) -> np.ndarray:
            return np.clip(np.reshape(action, box.shape).astype(box.dtype), low, high)  # float32 may round up

        return ActionParts(ActionSpace((), *(tuple(bound.ravel().tolist()) for bound in bounds)), clipped)
    raise UserError(
        f"the action space of the world {world!r} must be Discrete from 0 on, MultiDiscrete, MultiBinary or a Box of "
        f"fractions, not {space}: convert it with a wrapper ({WORLD_FLAG})"
    )


def _check_choices(count: int, space: spaces.Space, world: str) -> None:
    if count > MOST_CATEGORIES:
        raise UserError(
            f"the action space {space} of the world {world!r} has {count:,} values, but may have at most "
            f"{MOST_CATEGORIES:,}: choose fewer with a wrapper ({WORLD_FLAG})"
        )


def _field(space: spaces.Space, path: tuple[str, ...], kind: str) -> Field | None:
    """Returns the field of a space other than Dict; None if unsupported. An empty `kind` is inferred."""
    if isinstance(space, spaces.Text) or isinstance(space.sample(), str):
        return Field(path, ArraySpec((WIDTH,), "uint8", kind or "text"), encode)
    if isinstance(space, spaces.Discrete):
        start, values = int(space.start), int(space.n)
        return Field(path, ArraySpec((), "int32", kind or "category", values), lambda value: value - start)
    if isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary):
        values = 2 if isinstance(space, spaces.MultiBinary) else int(np.max(space.nvec))
        several = "category" if len(space.shape) <= 1 else "grid"
        start = getattr(space, "start", 0)
        return Field(
            path, ArraySpec(space.shape, "int32", kind or several, values), lambda value: np.asarray(value) - start
        )
    if isinstance(space, spaces.Box):
        kind, dtype = kind or _kind_of_box(space), np.dtype(space.dtype)
        discrete = kind in ("category", "grid") and dtype.kind in "iu"
        if not np.can_cast(dtype, np.int32):
            dtype = np.dtype(np.int32 if discrete else np.float32)  # types that devices compute with
        return Field(path, ArraySpec(space.shape, str(dtype), kind, _values(space) if discrete else 0), np.asarray)
    return None


def _kind_of_box(space: spaces.Box) -> str:
    """Infers the kind of a Box from its type, shape and bounds; "" if they do not decide it."""
    rank = len(space.shape)
    if rank <= 1 or (rank == 2 and np.issubdtype(space.dtype, np.floating)):
        return "vector"
    if (
        space.dtype == np.uint8
        and rank == 3
        and space.shape[2] <= IMAGE_CHANNELS
        and space.high.max() == BYTE_VALUES - 1
    ):
        return "image"
    if np.issubdtype(space.dtype, np.integer) and rank in (2, 3) and 0 < _values(space) < BYTE_VALUES:
        return "grid"
    return ""


def _values(space: spaces.Box) -> int:
    """Returns the number of values of a Box from 0 on; 0 if it is unbounded or can be negative."""
    low, high = int(space.low.min()), int(space.high.max())
    return high + 1 if low >= 0 and high < MOST_CATEGORIES else 0


# ---- checks of return values


class AnswerChecks:
    """The checks of one world or game (`what`); each returns the validated value."""

    def __init__(self, name: str, what: str = "world"):
        self._who = f"the {what} {name!r}"

    def refusal(self, method: str, wanted: str, value: Any, words: str = "") -> UserError:
        return UserError(f"{method} of {self._who} must return {wanted}, not {words or _spelled(value)} ({WORLD_FLAG})")

    def environment(self, env: Any) -> Any:
        """Checks the return value of `make`."""
        both = [getattr(env, name, None) for name in ("observation_space", "action_space")]
        if not all(isinstance(space, spaces.Space) for space in both):
            raise self.refusal("make()", "an environment with an observation and an action space of gymnasium", env)
        return env

    def parts(self, method: str, wanted: str, value: Any) -> Sequence[Any]:
        """Checks the tuple that `reset` or `step` returns; `wanted` names its parts."""
        if not isinstance(value, tuple | list) or len(value) != wanted.count(",") + 1:
            raise self.refusal(method, wanted, value)
        return value

    def number(self, method: str, wanted: str, value: Any, largest: float = sys.float_info.max) -> float:
        if not isinstance(value, str | bytes):
            try:
                number = float(value)
            except (TypeError, ValueError, OverflowError):
                number = math.nan
            if -largest <= number <= largest:
                return number
        raise self.refusal(method, wanted, value)

    def reward(self, value: Any, method: str = "step()") -> float:
        return self.number(method, "a reward that is a finite number of float32", value, LARGEST)

    def flag(self, method: str, what: str, value: Any) -> bool:
        """Checks True or False; a number is converted."""
        if value is True or value is False:
            return value
        if isinstance(value, int | float | np.generic | np.ndarray) and np.size(value) == 1:
            return bool(value)
        raise self.refusal(method, f"True or False as {what!r}", value)

    def array(self, method: str, name: str, field: Field, observation: Any) -> np.ndarray:
        """Checks one array of an observation."""
        value, spec = observation, field.spec
        try:
            for key in field.path:
                value = value[key]
        except (KeyError, IndexError, TypeError) as error:
            raise self.refusal(method, f"an observation with {name!r}", observation) from error
        try:
            given = np.asarray(field.convert(value))
        except (TypeError, ValueError, OverflowError, AttributeError) as error:
            raise self.refusal(method, f"the observation {name!r} as its space says", value) from error
        if given.shape != spec.shape:
            wanted = f"the observation {name!r} of shape {spec.shape}, as its space says"
            raise self.refusal(method, wanted, value, f"of shape {given.shape}")
        dtype, kind = dtype_of(spec.dtype), given.dtype.kind
        if kind == "f":
            # A fast test: the sum of squares exceeds LARGEST, or is NaN, if a number is huge or not finite.
            if not np.vdot(given, given) <= LARGEST:
                self._check_finite(method, name, given)
        elif kind not in "biu":
            raise self.refusal(method, f"numbers in the observation {name!r}", value)
        if spec.categories and not 0 <= given.min() <= given.max() < spec.categories:
            wanted = f"numbers from 0 to {spec.categories - 1} in the observation {name!r}, as its space says"
            raise self.refusal(method, wanted, value)
        if given.dtype == dtype:
            return given
        with np.errstate(invalid="ignore"):  # a float that is too large for an integer
            array = given.astype(dtype)
        if dtype.kind != "f" and not (array == given).all():
            raise self.refusal(method, f"numbers of the type {spec.dtype} in the observation {name!r}", value)
        return array

    def _check_finite(self, method: str, name: str, given: np.ndarray) -> None:
        with np.errstate(over="ignore"):
            bad = np.argwhere(~np.isfinite(given.astype(np.float32)))
        if len(bad):
            at = tuple(bad[0].tolist())
            where = f" at index {at[0] if len(at) == 1 else at}" if at else ""
            wanted = f"finite numbers of float32 in the observation {name!r}"
            raise self.refusal(method, wanted, given, f"{given[at]}{where}")

    def text(self, method: str, value: Any) -> str:
        if not isinstance(value, str):
            raise self.refusal(method, "text", value)
        return value

    def pixels(self, value: Any) -> np.ndarray:
        """Checks a picture. [height, width, 3] uint8"""
        if not (
            isinstance(value, np.ndarray)
            and value.dtype == np.uint8
            and value.ndim == 3
            and value.shape[2] == 3
            and 0 < min(value.shape) <= max(value.shape) <= MOST_PIXELS
        ):
            wanted = f"a picture of shape (height, width, 3) and type uint8, up to {MOST_PIXELS:,} on a side"
            raise self.refusal("render()", f"{wanted} (or set picture = '' in its class)", value)
        return value

    def names(self, what: str, value: Any) -> tuple[str, ...]:
        if not isinstance(value, tuple | list) or not all(isinstance(name, str) for name in value):
            raise self.refusal(what, "a tuple of texts", value)
        return tuple(value)

    def figures(self, figures: Mapping[str, type], value: Any) -> tuple[float, ...]:
        wanted = f"a finite number for each of {', '.join(figures)}"
        several = isinstance(value, tuple | list) or (isinstance(value, np.ndarray) and value.ndim > 0)
        if not several or len(value) != len(figures):
            raise self.refusal("measure()", wanted, value)
        return tuple(
            kind(self.number("measure()", wanted, number)) for kind, number in zip(figures.values(), value, strict=True)
        )

    def rows(self, value: Any) -> list[Pieces]:
        """Checks the rows of a screen; returns them as pieces of text with their colours."""
        wanted = f"rows of text, or of pieces of text with colours from 0 to {COLOURS - 1}"
        lines = value.splitlines() if isinstance(value, str) else value
        if not isinstance(lines, Sequence):
            raise self.refusal("screen()", wanted, value)
        rows = []
        for line in lines:
            pieces = [(line, GREY)] if isinstance(line, str) else line
            if not isinstance(pieces, Sequence):
                raise self.refusal("screen()", wanted, line)
            for piece in pieces:
                match piece:
                    case (str(), int() | np.integer() as color) if 0 <= color < COLOURS:
                        continue
                raise self.refusal("screen()", wanted, piece)
            rows.append([(text, int(color)) for text, color in pieces])
        return rows


def _spelled(value: Any) -> str:
    """Describes a value in a few words."""
    if isinstance(value, np.ndarray) and value.size > 9:
        return f"an array of shape {value.shape} and type {value.dtype}"
    try:
        return shown(value)
    except Exception:  # whatever the value's own __repr__ raises
        return f"a value of type {type(value).__name__}"


# ---- rendering


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
    """Returns the colour after SGR codes: 30 to 37 and 90 to 97 set the foreground, 40 to 47 and 100 to 107 reverse.

    Colours of a larger palette (38;5;n, 38;2;r;g;b; 48 for the background, 58 for a line below) change nothing.
    """
    for code in map(int, filter(None, PALETTE.sub("", codes).split(";") if codes else ["0"])):
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


def quiet() -> contextlib.AbstractContextManager[Any]:
    """Suppresses what environments print."""
    return contextlib.redirect_stdout(io.StringIO())


# ---- games and worlds


class GymWorldGame(SequentialGame):
    """One environment as a `world.Game`."""

    def __init__(self, world: GymWorld, shown: bool):
        """Makes the environment; it can render itself if `shown`."""
        self._world, self._fields, self._answers = world, world.fields, AnswerChecks(world.name)
        self._drawn = b""  # the last picture, unencoded
        self._trouble: list[Pieces] = []  # why a picture is missing
        env, self._draws = None, None
        if shown:
            with self._explained():
                env = world.make_shown()
                self._draws = getattr(env, "render_mode", None)
        with quiet():
            self._env = self._answers.environment(world.make() if env is None else env)
        self._state = self._env.unwrapped
        self.num_actions, self._parts = len(world.action_names), world.action_parts
        self.seen: dict[str, np.ndarray] = {}  # current observations by name

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Runs code that renders: on an error there are no pictures, and the screen shows why."""
        try:
            with quiet():
                yield
        except Exception as error:
            self._draws = None
            self._trouble = [[(f"no picture: {error}".splitlines()[0], GREY)]]

    def reset(self, seed: GameSeed, episode: int = 0) -> None:
        self._drawn = b""  # so that an episode begins with a picture
        with quiet():
            result = self._env.reset(seed=seed.core % SEEDS)
        observation, _ = self._answers.parts("reset()", RESET, result)
        self.start_episode(episode)
        self._look("reset()", observation)

    def step(self, action: Any) -> float:
        answers, parts = self._answers, self._parts
        result = self._env.step(parts.convert(action) if parts else int(action))
        observation, paid, terminated, truncated, _ = answers.parts("step()", STEP, result)
        reward = answers.reward(paid)
        terminated = answers.flag("step()", "terminated", terminated)
        truncated = answers.flag("step()", "truncated", truncated)
        self.count_step(reward)
        if terminated:
            success = self._world.succeeded(reward, self._state)
            self._success = answers.flag("succeeded()", "success", success)
            self.end = EndStatus.TASK_SUCCESSFUL if self._success else EndStatus.ENDED
            self.cause = "" if self._success else ENDED
        elif truncated or self._steps >= self._world.time_limit:
            self.end = EndStatus.ABORTED
        self._look("step()", observation)
        return reward

    def measure(self) -> tuple[float, ...]:
        figures = self._world.figures
        return self._answers.figures(figures, self._world.measure(self._state)) if figures else ()

    def draw(self, chance: float) -> Any:
        return self._parts.space.draw(chance) if self._parts else super().draw(chance)

    def screen(self) -> Screen:
        """Draws the caption, and below it the world's screen or the environment's text."""
        rows = self._answers.rows(self._world.screen(self._state)) + self._trouble
        if self._draws == "ansi" and (drawn := self._render()) is not None:
            rows = pieces_of_ansi(self._answers.text("render()", drawn))
        return draw_screen(self.message.decode("latin-1"), rows)

    def picture(self) -> bytes:
        """Returns the environment's picture as WebP; empty if it has not changed, or without pictures."""
        if self._draws != "rgb_array" or (drawn := self._render()) is None:
            return b""
        pixels = self._answers.pixels(drawn)
        if (content := repr(pixels.shape).encode() + pixels.tobytes()) == self._drawn:
            return b""
        self._drawn = content
        return encode_picture(pixels)

    def _render(self) -> Any:
        """Renders the environment; None after an error."""
        with self._explained():
            return self._env.render()
        return None

    def close(self) -> None:
        self._env.close()

    def _look(self, method: str, observation: Any) -> None:
        """Stores the observations that `method` returned, and their caption."""
        for name, field in self._fields.items():
            self.seen[name] = self._answers.array(method, name, field, observation)
        caption = self._answers.text("caption()", self._world.caption(observation, self._state))
        self.seen |= self.show_caption(caption.strip().encode("latin-1", "replace").replace(b"\0", b"")[:WIDTH])


class GymWorld(SequentialWorld):
    """A gymnasium environment with a caption for each moment; the attributes for subclasses are marked below."""

    # ---- set by a subclass
    id: str = ""  # of `gymnasium.make`
    about: str = ""  # description of the game for a language model; "": made from its id
    kinds: Mapping[str, str] = {}  # of observations whose kind cannot be inferred from their space: networks/kinds.py
    figures: Mapping[str, type] = {}  # numbers of an episode, returned by `measure`: name -> bool, int or float
    texts: Path | None = None  # directory with goals, prompts and rules about this game
    numbers: Mapping[str, tuple[str, int]] = {}  # names for reward programs; these three: `world.Viewpoint`
    viewpoints: Mapping[str, Viewpoint] = {}
    still: tuple[str, ...] = ()
    picture: str = AUTO  # "rgb_array" or "ansi": the environment's render mode; "": only `screen`
    # `reads` (the policy's observations) and `action_names` may be set too; see the properties below.

    # ---- the same for all subclasses
    pairs = ("message",)
    players = ("random",)

    def __init__(self, max_episode_steps: int = 5000, **options: Any):
        """Takes the time limit in steps, and options for the environment."""
        Whole(1).check("max_episode_steps", WORLD_FLAG, max_episode_steps)
        self.time_limit, self.options = max_episode_steps, options
        self.class_name = f"{type(self).__module__}:{type(self).__qualname__}"
        self.name = getattr(type(self), "name", self.id or self.class_name)
        self.about = self.about or f"the game {self.name}"
        self.render_mode: str | None = None  # read by `make`; set while a game is made that will be shown

    # ---- may be overridden (`caption` must be)

    def make(self) -> gymnasium.Env:
        """Makes the environment; override it to add wrappers."""
        mode = {} if self.render_mode is None else {"render_mode": self.render_mode}
        return gymnasium.make(self.id, disable_env_checker=True, **{**mode, **self.options})

    def caption(self, observation: Any, env: Any) -> str:
        """Describes what has just happened in one line of up to 256 characters; characters outside Latin-1 become "?".

        Args:
          observation: as the environment gives it.
          env: the environment without its wrappers.
        """
        raise NotImplementedError(f"{type(self).__name__} must define caption(observation, env)")

    def screen(self, env: Any) -> Sequence[ScreenRow]:
        """Draws up to 21 rows of 80 characters, each text or pieces of text with their colours."""
        return []

    def measure(self, env: Any) -> Sequence[float]:
        """Returns the values of `figures`, in their order."""
        return ()

    def succeeded(self, reward: float, env: Any) -> bool:
        """Whether an episode that terminated with this reward has succeeded."""
        return reward > SUCCESS

    # ---- the World interface

    @functools.cached_property
    def _spaces(self) -> tuple[dict[str, Field], tuple[str, ...], ActionParts | None]:
        """The fields of observations, and names or parts of actions, from a temporary environment."""
        if not self.id and type(self).make is GymWorld.make:
            raise UserError(f"the world {self.class_name!r} names no environment, as id = ... ({WORLD_FLAG})")
        answers = AnswerChecks(self.name)
        if not isinstance(self.kinds, Mapping):
            raise UserError(
                f"'kinds' of the world {self.name!r} must be a dictionary of observations, not {shown(self.kinds)} "
                f"({WORLD_FLAG})"
            )
        try:
            with quiet():
                env = answers.environment(self.make())
        except gymnasium.error.UnregisteredEnv as error:
            hint = suggest(self.id, gymnasium.registry, "import what registers it in the module of the world")
            raise UserError(f"gymnasium knows no environment {self.id!r} ({WORLD_FLAG}): {hint}") from error
        try:
            self._render_mode = self._find_render_mode(env)
            fields = fields_of(env.observation_space, self.kinds, self.name)
            given: Any = type(self).action_names
            parts = action_parts_of(env.action_space, self.name)
            names = () if parts or isinstance(given, property) else given
            return fields, () if parts else _names_of(env, names, self.name, answers), parts
        finally:
            env.close()

    def _find_render_mode(self, env: Any) -> str | None:
        """Returns the render mode of shown games; None if they use only `screen`."""
        if self.picture not in (AUTO, "", *RENDER_MODES):
            raise UserError(
                f"'picture' of the world {self.name!r} must be one of {', '.join(map(repr, RENDER_MODES))} and '', not "
                f"{shown(self.picture)} ({WORLD_FLAG})"
            )
        if self.picture != AUTO:
            return self.picture or None
        if type(self).screen is not GymWorld.screen:
            return None
        modes = (getattr(env, "metadata", None) or {}).get("render_modes") or ()
        return next((mode for mode in RENDER_MODES if mode in modes), None)

    def make_shown(self) -> gymnasium.Env:
        """Makes an environment that can render itself."""
        os.environ.setdefault("SDL_AUDIODRIVER", "dummy")  # many machines do not have a sound device
        self.render_mode = self._render_mode
        try:
            return self.make()
        finally:
            self.render_mode = None

    @property
    def fields(self) -> dict[str, Field]:
        """The environment's observations by name."""
        return self._spaces[0]

    @property
    def action_names(self) -> tuple[str, ...]:
        """The names of the actions, by default the environment's own; () if they are several choices or numbers."""
        return self._spaces[1]

    @property
    def action_parts(self) -> ActionParts | None:
        """The parts of an action of several choices or numbers; None for single choices."""
        return self._spaces[2]

    @property
    def action_space(self) -> ActionSpace | None:
        return self.action_parts.space if self.action_parts else None

    @property
    def action(self) -> ArraySpec:
        return self.action_parts.space.spec if self.action_parts else CHOICE

    @property
    def reads(self) -> tuple[str, ...]:
        """The observations that a policy reads; by default all of the environment's, and the caption."""
        return (*self.fields, "message")

    @functools.cached_property
    def specs(self) -> dict[str, ArraySpec]:
        """See `World.specs`: the environment's observations before and after each step, and the captions."""
        specs = {name: field.spec for name, field in self.fields.items()}
        return specs | {f"event_{name}": spec for name, spec in specs.items()} | CAPTIONS

    def check(self) -> None:
        """Makes an environment, and plays a step in it."""
        game = self.game(shown=False)  # playing does not need rendering
        try:
            game.reset(game_seed(0, SeedStream.TRAIN, 0), 0)
            game.step(game.draw(0.0))
            game.info()
            game.screen()
        finally:
            game.close()

    def game(self, shown: bool = True) -> GymWorldGame:
        return GymWorldGame(self, shown)

    def plays(self, metadata: Mapping[str, Any]) -> str:
        """See `World.plays`: the class, the actions and the observations must match."""
        if reason := trained_elsewhere(metadata, self):
            return reason
        model = metadata["model"]
        if space_from(model) != self.action_space:
            return f"has actions of other parts than the world {self.name!r}"
        if not self.action_space and model["num_actions"] != len(self.action_names):
            return f"has {model['num_actions']} actions, but the world {self.name!r} has {len(self.action_names)}"
        return unreadable(model.get("reads", {}), self.specs)


def _names_of(env: gymnasium.Env, given: Any, world: str, answers: AnswerChecks) -> tuple[str, ...]:
    """Returns the names of the actions of a Discrete space; raises UserError for a wrong number of names."""
    space: Any = env.action_space
    inner: Any = env.unwrapped
    own = getattr(inner, "actions", None)
    if given:
        names = answers.names("action_names", given)
    elif isinstance(own, type) and issubclass(own, enum.Enum):
        names = tuple(action.name for action in own)
    elif callable(getattr(inner, "get_action_meanings", None)):
        meanings = answers.names("get_action_meanings()", inner.get_action_meanings())
        names = tuple(name.lower() for name in meanings)
    else:
        names = tuple(f"action {number}" for number in range(int(space.n)))
    if len(names) != space.n:
        raise UserError(f"the world {world!r} names {len(names)} actions, but has {space.n} ({WORLD_FLAG})")
    return names
