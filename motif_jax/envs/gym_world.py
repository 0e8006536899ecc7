"""Any gymnasium environment as a world, given its id and a caption of what happens: docs/own-game.md.

Return values of the environment and of the subclass are validated in every step of every game, so each check begins
with a fast test that nearly all values pass. An error names the world, the method and the value.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import io
import operator
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
from motif_jax.config.table import Text, Whole, shown
from motif_jax.console import suggest
from motif_jax.envs.own_code import WORLD_FLAG, fitted
from motif_jax.envs.sequential import SequentialGame, SequentialWorld
from motif_jax.envs.world import (
    CAPTIONS,
    CHOICE,
    GREY,
    ActionSpace,
    GameSeed,
    Pieces,
    Screen,
    Viewpoint,
    draw_screen,
    space_from,
    step_specs,
)
from motif_jax.structs import BYTE_VALUES, IMAGE_CHANNELS, MOST_CATEGORIES, ArraySpec, EndStatus, UserError

LARGEST = float(np.finfo(np.float32).max)  # rewards are recorded as float32
MOST_PIXELS = 8192  # per side of a picture
COLOURS = 16  # of a world's screen
SIDE = 320  # maximum pixels of the longer side of a picture
REVERSED = 16  # added to a colour for reversed video
STYLE = re.compile(r"\033\[([\d;]{0,40})m")
PALETTE = re.compile(r"\b[345]8;(5;\d*|2;\d*;\d*;\d*)")
OTHER = re.compile(r"\033\[[0-?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f]")  # other control sequences
SEEDS = 2**31  # exclusive limit of seeds; even, to keep the lowest bit, which separates training from evaluation
RENDER_MODES = ("rgb_array", "ansi")  # supported ones, the preferred one first
AUTO = "auto"  # the first of RENDER_MODES that the environment has, unless the world draws its own screen


# ---- spaces


class Field(NamedTuple):
    """One array of the observations."""

    path: tuple[str, ...]  # keys of the nested dictionaries
    spec: ArraySpec
    convert: Callable[[Any], Any]  # the environment's value -> an array-like that fits the spec
    wanted: str  # for errors

    def find(self, observation: Any) -> Any:
        return functools.reduce(operator.getitem, self.path, observation)

    def fit(self, value: Any) -> np.ndarray | None:
        """Returns the array of a value; None if it does not fit the spec."""
        array, categories = fitted(self.convert(value), self.spec.shape, self.spec.dtype), self.spec.categories
        # A fast test: the sum of squares exceeds LARGEST, or is NaN, if a number is huge or not finite.
        if array.dtype.kind == "f" and not np.vdot(array, array) <= LARGEST and not np.isfinite(array).all():
            return None
        return None if categories and not 0 <= array.min() <= array.max() < categories else array


def fields_of(space: spaces.Space, kinds: Mapping[str, str], world: str) -> dict[str, Field]:
    """Returns the fields of an observation space by name; raises UserError for spaces that cannot be recorded.

    `kinds`: the user's kinds of some observations, by name (networks/kinds.py).
    """
    fields: dict[str, Field] = {}
    for path, leaf in _leaves(space, ()):
        name = "_".join(path) or "observation"
        taken = name in (CAPTIONS | step_specs()) or name.startswith("event_") or name in fields
        found = _spec_of(leaf, kinds.get(name, ""))
        if taken or found is None:
            other = f"whose space is {type(leaf).__name__}: make it a Box, a text, discrete values or a Dict of these"
            why = "a name that is taken: rename it" if taken else other
            raise UserError(
                f"the world {world!r} gives an observation called {name!r}, {why} with a wrapper ({WORLD_FLAG})"
            )
        spec, convert = found
        values = f"from 0 to {spec.categories - 1}, " if spec.categories else ""
        wanted = f"the observation {name!r} as its space says: finite numbers {values}of shape {spec.shape}"
        fields[name] = Field(path, spec, convert, f"{wanted} and type {spec.dtype}")
    if unknown := [name for name in kinds if name not in fields]:
        raise UserError(
            f"the world {world!r} declares the kind of the observation {unknown[0]!r}, which its environment does not "
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


def action_parts_of(space: Any, world: str) -> tuple[ActionSpace, Callable[[Any], Any]] | None:
    """Returns the parts of a space of actions, and a function from a recorded action to the environment's.

    None if the space is Discrete. Raises UserError for other spaces.
    """
    sizes = _sizes(space)
    count = 0 if sizes is None else sum(sizes.ravel().tolist())  # NumPy's sum can overflow
    if count > MOST_CATEGORIES:
        raise UserError(
            f"the action space {space} of the world {world!r} has {count:,} values, but may have at most "
            f"{MOST_CATEGORIES:,}: choose fewer with a wrapper ({WORLD_FLAG})"
        )
    if isinstance(space, spaces.Discrete) and space.start == 0:
        return None
    if sizes is not None and sizes.ndim and sizes.size:
        start = getattr(space, "start", 0)

        def shifted(action: Any) -> np.ndarray:
            return (np.reshape(action, space.shape) + start).astype(space.dtype)

        return ActionSpace(tuple(sizes.ravel().tolist())), shifted
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating) and space.shape and space.low.size:
        with np.errstate(over="ignore", invalid="ignore"):
            bounds = np.float32(space.low), np.float32(space.high)
            width = bounds[1] - bounds[0]
        if not (np.isfinite(width) & (width > 0)).all():
            raise UserError(
                f"the actions of the world {world!r} must have bounds whose differences are positive and finite in "
                f"float32, not {space}: set them with a wrapper, such as gymnasium.wrappers.RescaleAction "
                f"({WORLD_FLAG})"
            )

        def clipped(action: Any) -> np.ndarray:
            action = np.reshape(action, space.shape).astype(space.dtype)
            return np.clip(action, space.low, space.high)  # float32 may round up

        return ActionSpace((), *(tuple(bound.ravel().tolist()) for bound in bounds)), clipped
    raise UserError(
        f"the action space of the world {world!r} must be Discrete from 0 on, MultiDiscrete, MultiBinary or a Box of "
        f"fractions, not {space}: convert it with a wrapper ({WORLD_FLAG})"
    )


def _sizes(space: spaces.Space) -> np.ndarray | None:
    """Returns the numbers of values of a space of choices, in its shape; None for other spaces."""
    if isinstance(space, spaces.Discrete):
        return np.array(int(space.n))
    if isinstance(space, spaces.MultiBinary):
        return np.full(space.shape, 2)
    return space.nvec if isinstance(space, spaces.MultiDiscrete) else None


def _spec_of(space: spaces.Space, kind: str) -> tuple[ArraySpec, Callable[[Any], Any]] | None:
    """Returns spec and conversion of a space other than Dict; None if unsupported. An empty `kind` is inferred."""
    if isinstance(space, spaces.Text) or isinstance(space.sample(), str):
        return ArraySpec((WIDTH,), "uint8", kind or "text"), encode
    if (sizes := _sizes(space)) is not None:
        start, kind = getattr(space, "start", 0), kind or ("category" if sizes.ndim <= 1 else "grid")
        return ArraySpec(sizes.shape, "int32", kind, int(sizes.max())), lambda value: np.asarray(value) - start
    if isinstance(space, spaces.Box):
        kind, dtype = kind or _kind_of_box(space), np.dtype(space.dtype)
        discrete = kind in ("category", "grid") and dtype.kind in "iu"
        if not np.can_cast(dtype, np.int32):
            dtype = np.dtype(np.int32 if discrete else np.float32)  # types that devices compute with
        return ArraySpec(space.shape, str(dtype), kind, _values(space) if discrete else 0), np.asarray
    return None


def _kind_of_box(space: spaces.Box) -> str:
    """Infers the kind of a Box from its type, shape and bounds; "" if they do not decide it."""
    rank = len(space.shape)
    if rank <= 1 or (rank == 2 and np.issubdtype(space.dtype, np.floating)):
        return "vector"
    values = _values(space) if np.issubdtype(space.dtype, np.integer) else 0
    if space.dtype == np.uint8 and rank == 3 and space.shape[2] <= IMAGE_CHANNELS and values == BYTE_VALUES:
        return "image"
    return "grid" if rank in (2, 3) and 0 < values < BYTE_VALUES else ""


def _values(space: spaces.Box) -> int:
    """Returns the number of values of a Box from 0 on; 0 if it is unbounded or can be negative."""
    low, high = int(space.low.min()), int(space.high.max())
    return high + 1 if low >= 0 and high < MOST_CATEGORIES else 0


# ---- checks of return values


Form = tuple[str, Callable[[Any], Any]]  # what is wanted, and the function from a value to the checked one, or None


def checked(who: str, method: str, form: Form, value: Any) -> Any:
    """Checks what a method of a world or game (`who`) returned; raises UserError if it does not have the form."""
    try:
        taken = form[1](value)
    except (TypeError, ValueError, OverflowError, AttributeError, LookupError):
        taken = None
    if taken is None:
        raise UserError(f"{method} of {who} must return {form[0]}, not {_spelled(value)} ({WORLD_FLAG})")
    return taken


def tuple_of(parts: str) -> Form:
    """The form of a tuple with these parts, such as "(observation, info)"."""
    count = parts.count(",") + 1
    return parts, lambda value: value if isinstance(value, (tuple, list)) and len(value) == count else None


def instance_of(kind: type, wanted: str) -> Form:
    """The form of an object of this type."""
    return wanted, lambda value: value if isinstance(value, kind) else None


def number_of(value: Any, largest: float = sys.float_info.max) -> float | None:
    """Returns a value as a number; None if it is not one, or not finite."""
    if isinstance(value, (str, bytes)):
        return None
    number = float(value)
    return number if -largest <= number <= largest else None


def _flag(value: Any) -> bool | None:
    if value is True or value is False:
        return value
    single = isinstance(value, (int, float, np.generic, np.ndarray)) and np.size(value) == 1
    return bool(value) if single else None


def _names(value: Any) -> tuple[str, ...] | None:
    texts = isinstance(value, tuple | list) and all(isinstance(name, str) for name in value)
    return tuple(value) if texts else None


def _picture(value: Any) -> np.ndarray | None:
    """[height, width, 3] uint8"""
    colours = isinstance(value, np.ndarray) and value.dtype == np.uint8 and value.ndim == 3 and value.shape[2] == 3
    return value if colours and 0 < min(value.shape) <= max(value.shape) <= MOST_PIXELS else None


def _environment(env: Any) -> Any:
    return env if all(isinstance(space, spaces.Space) for space in (env.observation_space, env.action_space)) else None


def _figures(value: Any, kinds: Mapping[str, type]) -> tuple[float, ...] | None:
    if not isinstance(value, tuple | list | np.ndarray) or len(value) != len(kinds):
        return None
    numbers = [number_of(number) for number in value]
    paired = zip(kinds.values(), numbers, strict=True)
    return None if None in numbers else tuple(kind(number) for kind, number in paired)


def _rows(value: Any) -> list[Pieces] | None:
    """Returns the rows of a screen as pieces of text with their colours."""
    if not isinstance(value, Sequence) or not all(isinstance(line, Sequence) for line in value):
        return None
    rows: list[Pieces] = []
    for line in value.splitlines() if isinstance(value, str) else value:
        pieces = [(line, GREY)] if isinstance(line, str) else line
        rows.append([(text, operator.index(color)) for text, color in pieces])
        if not all(isinstance(text, str) and 0 <= color < COLOURS for text, color in rows[-1]):
            return None
    return rows


def _spelled(value: Any) -> str:
    if isinstance(value, np.ndarray) and value.size > 9:
        broken = value.dtype.kind == "f" and not np.isfinite(value).all()
        return f"an array of shape {value.shape} and type {value.dtype}{', not all finite' * broken}"
    try:
        return shown(value)
    except Exception:  # whatever the value's own __repr__ raises
        return f"a value of type {type(value).__name__}"


TEXT = instance_of(str, "text")
REWARD: Form = "a reward that is a finite number of float32", lambda value: number_of(value, LARGEST)
FLAGS: dict[str, Form] = {
    name: (f"True or False as {name!r}", _flag) for name in ("terminated", "truncated", "success")
}
RESET, STEP = tuple_of("(observation, info)"), tuple_of("(observation, reward, terminated, truncated, info)")
ENVIRONMENT: Form = "an environment with an observation and an action space of gymnasium", _environment
ROWS: Form = f"rows of text, or of pieces of text with colours from 0 to {COLOURS - 1}", _rows
PICTURE: Form = (
    f"a picture of shape (height, width, 3) and type uint8, up to {MOST_PIXELS:,} on a side (or set picture = '' in "
    "its class)",
    _picture,
)


# ---- rendering


def encode_picture(pixels: np.ndarray) -> bytes:
    """Encodes pixels, [height, width, 3] uint8, as WebP with sides of at most SIDE."""
    from PIL import Image  # slow to import, and most games are never shown

    picture = Image.fromarray(pixels)
    picture.thumbnail((SIDE, SIDE))
    packed = io.BytesIO()
    picture.save(packed, "WEBP", quality=80, method=2)
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
        self._world, self._take = world, functools.partial(checked, f"the world {world.name!r}")
        self._fields, _, self._parts = world._spaces
        self._drawn = b""  # the last picture, unencoded
        self._trouble: list[Pieces] = []  # why a picture is missing
        env, self._draws = None, None
        if shown:
            with self._explained():
                env = world.make_shown()
                self._draws = getattr(env, "render_mode", None)
        with quiet():
            self._env = world.make() if env is None else env
        self._state, self.num_actions = self._env.unwrapped, len(world.action_names)
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
        observation, _ = self._take("reset()", RESET, result)
        self.start_episode(episode)
        self._look("reset()", observation)

    def step(self, action: Any) -> float:
        take = self._take
        result = self._env.step(self._parts[1](action) if self._parts else int(action))
        observation, paid, terminated, truncated, _ = take("step()", STEP, result)
        reward: float = take("step()", REWARD, paid)
        terminated = take("step()", FLAGS["terminated"], terminated)
        truncated = take("step()", FLAGS["truncated"], truncated)
        self.count_step(reward)
        if terminated:
            success = take("succeeded()", FLAGS["success"], self._world.succeeded(reward, self._state))
            self.finish(success, "the game ended")
        elif truncated or self._steps >= self._world.time_limit:
            self.end = EndStatus.ABORTED
        self._look("step()", observation)
        return reward

    def measure(self) -> tuple[float, ...]:
        kinds = self._world.figures
        form = f"a finite number for each of {', '.join(kinds)}", functools.partial(_figures, kinds=kinds)
        return self._take("measure()", form, self._world.measure(self._state)) if kinds else ()

    def draw(self, chance: float) -> Any:
        return self._parts[0].draw(chance) if self._parts else super().draw(chance)

    def screen(self) -> Screen:
        """Draws the caption, and below it the world's screen or the environment's text."""
        rows = self._take("screen()", ROWS, self._world.screen(self._state)) + self._trouble
        if self._draws == "ansi" and (drawn := self._render()) is not None:
            rows = pieces_of_ansi(self._take("render()", TEXT, drawn))
        return draw_screen(self.message.decode("latin-1"), rows)

    def picture(self) -> bytes:
        """Returns the environment's picture as WebP; empty if it has not changed, or without pictures."""
        if self._draws != "rgb_array" or (drawn := self._render()) is None:
            return b""
        pixels = self._take("render()", PICTURE, drawn)
        if (content := repr(pixels.shape).encode() + pixels.tobytes()) == self._drawn:
            return b""
        self._drawn = content
        return encode_picture(pixels)

    def _render(self) -> Any:
        with self._explained():
            return self._env.render()
        return None

    def close(self) -> None:
        self._env.close()

    def _look(self, method: str, observation: Any) -> None:
        """Stores the observations that `method` returned, and their caption."""
        take = self._take
        for name, field in self._fields.items():
            value = take(method, (field.wanted, field.find), observation) if field.path else observation
            self.seen[name] = take(method, (field.wanted, field.fit), value)
        caption = take("caption()", TEXT, self._world.caption(observation, self._state))
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

    def screen(self, env: Any) -> Sequence[str | Sequence[tuple[str, int]]]:
        """Draws up to 21 rows of 80 characters, each text or pieces of text with their colours."""
        return []

    def measure(self, env: Any) -> Sequence[float]:
        """Returns the values of `figures`, in their order."""
        return ()

    def succeeded(self, reward: float, env: Any) -> bool:
        """Whether an episode that terminated with this reward has succeeded."""
        return reward > 0

    # ---- the World interface

    @functools.cached_property
    def _spaces(self) -> tuple[dict[str, Field], tuple[str, ...], tuple[ActionSpace, Callable[[Any], Any]] | None]:
        """The fields of observations, and names and parts of actions, from a temporary environment."""
        if not self.id and type(self).make is GymWorld.make:
            raise UserError(f"the world {self.class_name!r} names no environment, as id = ... ({WORLD_FLAG})")
        Text(("", AUTO, *RENDER_MODES)).check("picture", WORLD_FLAG, self.picture)
        if not isinstance(self.kinds, Mapping):
            raise UserError(f"kinds must be a dictionary of observations, not {shown(self.kinds)} ({WORLD_FLAG})")
        try:
            with quiet():
                env = self.make()
        except gymnasium.error.UnregisteredEnv as error:
            hint = suggest(self.id, gymnasium.registry, "import what registers it in the module of the world")
            raise UserError(f"gymnasium knows no environment {self.id!r} ({WORLD_FLAG}): {hint}") from error
        checked(f"the world {self.name!r}", "make()", ENVIRONMENT, env)
        try:
            own_screen = type(self).screen is not GymWorld.screen
            modes = () if own_screen else (getattr(env, "metadata", None) or {}).get("render_modes") or ()
            preferred = next((mode for mode in RENDER_MODES if mode in modes), "")
            self._render_mode = (preferred if self.picture == AUTO else self.picture) or None
            fields = fields_of(env.observation_space, self.kinds, self.name)
            parts = action_parts_of(env.action_space, self.name)
            return fields, () if parts else self._names_of(env), parts
        finally:
            env.close()

    def _names_of(self, env: Any) -> tuple[str, ...]:
        given: Any = type(self).action_names
        own, count = getattr(env.unwrapped, "actions", None), int(env.action_space.n)
        method, names = "action_names", [f"action {number}" for number in range(count)]
        if given and not isinstance(given, property):
            names = given
        elif isinstance(own, type) and issubclass(own, enum.Enum):
            names = [action.name for action in own]
        elif callable(meanings := getattr(env.unwrapped, "get_action_meanings", None)):
            method, names = "get_action_meanings()", meanings()
        names = checked(f"the world {self.name!r}", method, (f"a tuple of {count} texts", _names), names)
        if len(names) != count:
            raise UserError(f"the world {self.name!r} names {len(names)} actions, but has {count} ({WORLD_FLAG})")
        return tuple(names if method == "action_names" else map(str.lower, names))

    def make_shown(self) -> gymnasium.Env:
        """Makes an environment that can render itself."""
        os.environ.setdefault("SDL_AUDIODRIVER", "dummy")  # many machines do not have a sound device
        self.render_mode = self._render_mode
        try:
            return self.make()
        finally:
            self.render_mode = None

    @property
    def action_names(self) -> tuple[str, ...]:
        """The names of the actions, by default the environment's own; () if they are several choices or numbers."""
        return self._spaces[1]

    @property
    def action_space(self) -> ActionSpace | None:
        """The parts of an action of several choices or numbers; None for single choices."""
        return self._spaces[2][0] if self._spaces[2] else None

    @property
    def action(self) -> ArraySpec:
        return self._spaces[2][0].spec if self._spaces[2] else CHOICE

    @property
    def reads(self) -> tuple[str, ...]:
        """The observations that a policy reads; by default all of the environment's, and the caption."""
        return (*self._spaces[0], "message")

    @functools.cached_property
    def specs(self) -> dict[str, ArraySpec]:
        specs = {name: field.spec for name, field in self._spaces[0].items()}
        return specs | {f"event_{name}": spec for name, spec in specs.items()} | CAPTIONS

    def game(self, shown: bool = True) -> GymWorldGame:
        return GymWorldGame(self, shown)

    def plays(self, metadata: Mapping[str, Any]) -> str:
        model = metadata["model"]
        if reason := super().plays(metadata):
            return reason
        if space_from(model) != self.action_space:
            return f"has actions of other parts than the world {self.name!r}"
        if not self.action_space and model["num_actions"] != len(self.action_names):
            return f"has {model['num_actions']} actions, but the world {self.name!r} has {len(self.action_names)}"
        return ""
