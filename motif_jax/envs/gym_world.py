"""Any gymnasium environment as a world, given its id and a caption of what happens: docs/own-game.md.

Observations are validated in every step, so each check begins with a fast test that nearly all values pass. Other wrong
values raise Python's errors, which `own_code.reported` attributes to the world.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import io
import operator
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces

from motif_jax.captions import WIDTH, encode
from motif_jax.config.table import Text, shown
from motif_jax.envs.own_code import WORLD_FLAG, fitted, message_of
from motif_jax.envs.sequential import SequentialGame, SequentialWorld
from motif_jax.envs.world import CAPTIONS, CHOICE, GREY, ActionSpace, GameSeed, Pieces, Screen, Viewpoint, draw_screen
from motif_jax.structs import BYTE_VALUES, IMAGE_CHANNELS, MOST_CATEGORIES, ArraySpec, EndStatus, Meaning, UserError

LARGEST = float(np.finfo(np.float32).max)
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

    def read(self, observation: Any) -> np.ndarray:
        """Returns this array of an observation; raises ValueError, or other errors, if it does not fit the spec."""
        value = functools.reduce(operator.getitem, self.path, observation)
        array, categories = fitted(self.convert(value), self.spec.shape, self.spec.dtype), self.spec.categories
        # A fast test: the sum of squares exceeds LARGEST, or is NaN, if a number is huge or not finite.
        finite = array.dtype.kind != "f" or np.vdot(array, array) <= LARGEST or np.isfinite(array).all()
        if not finite or (categories and not 0 <= array.min() <= array.max() < categories):
            raise ValueError("not all numbers are finite" + f", and from 0 to {categories - 1}" * bool(categories))
        return array


def fields_of(space: spaces.Space, kinds: Mapping[str, str], world: str) -> dict[str, Field]:
    """Returns the fields of an observation space by name; raises UserError for spaces that cannot be recorded.

    `kinds`: the user's kinds of some observations, by name (networks/kinds.py).
    """
    fields: dict[str, Field] = {}
    for path, leaf in _leaves(space):
        name = "_".join(path) or "observation"
        found = _spec_of(leaf, kinds.get(name, ""))
        if name in CAPTIONS or name.startswith("event_") or name in fields or found is None:
            raise UserError(
                f"the world {world!r} gives an observation {name!r}, whose space is {type(leaf).__name__}: with a "
                "wrapper, rename it if it is called like a caption or event, or make it a Box, a text, discrete values "
                f"or a Dict of these ({WORLD_FLAG})"
            )
        fields[name] = Field(path, *found)
    if unknown := [name for name in kinds if name not in fields]:
        raise UserError(
            f"the world {world!r} declares the kind of the observation {unknown[0]!r}, which its environment does not "
            f"give: it gives {', '.join(fields)} ({WORLD_FLAG})"
        )
    return fields


def _leaves(space: spaces.Space, *path: str) -> Iterator[tuple[tuple[str, ...], spaces.Space]]:
    if not isinstance(space, spaces.Dict):
        yield path, space
    else:
        for key, inner in space.spaces.items():
            yield from _leaves(inner, *path, str(key))


def _spec_of(space: spaces.Space, kind: str) -> tuple[ArraySpec, Callable[[Any], Any]] | None:
    """Returns spec and conversion of a space other than Dict; None if unsupported. An empty `kind` is inferred."""
    if isinstance(space, spaces.Text) or isinstance(space.sample(), str):
        return ArraySpec((WIDTH,), "uint8", kind or "text"), encode
    if (sizes := _sizes(space)) is not None:
        start, kind = getattr(space, "start", 0), kind or ("category" if sizes.ndim <= 1 else "grid")
        return ArraySpec(sizes.shape, "int32", kind, int(sizes.max())), lambda value: np.asarray(value) - start
    if not isinstance(space, spaces.Box):
        return None
    dtype, rank, values = np.dtype(space.dtype), len(space.shape), 0  # values: from 0 on, if they are few
    if dtype.kind in "iu" and space.low.size and space.low.min() >= 0 and space.high.max() < MOST_CATEGORIES:
        values = int(space.high.max()) + 1
    if not kind and (rank <= 1 or (rank == 2 and dtype.kind == "f")):
        kind = "vector"
    elif not kind and dtype == np.uint8 and rank == 3 and space.shape[2] <= IMAGE_CHANNELS and values == BYTE_VALUES:
        kind = "image"
    elif not kind and rank in (2, 3) and 0 < values < BYTE_VALUES:
        kind = "grid"
    discrete = kind in ("category", "grid") and dtype.kind in "iu"
    if not np.can_cast(dtype, np.int32):
        dtype = np.dtype(np.int32 if discrete else np.float32)  # types that devices compute with
    return ArraySpec(space.shape, str(dtype), kind, values * discrete), np.asarray


def _sizes(space: spaces.Space) -> np.ndarray | None:
    """Returns the numbers of values of a space of choices, in its shape; None for other spaces."""
    if isinstance(space, spaces.Discrete):
        return np.array(int(space.n))
    if isinstance(space, spaces.MultiBinary):
        return np.full(space.shape, 2)
    return space.nvec if isinstance(space, spaces.MultiDiscrete) else None


def action_parts_of(space: Any, world: str) -> tuple[ActionSpace, Callable[[Any], Any]] | None:
    """Returns the parts of a space of actions, and a function from a recorded action to the environment's.

    None if the space is Discrete. Raises UserError for other spaces.
    """
    sizes = _sizes(space)
    parts = () if sizes is None else tuple(sizes.ravel().tolist())
    start = getattr(space, "start", 0)
    if 0 < sum(parts) <= MOST_CATEGORIES:  # NumPy's sum can overflow
        if space.shape:
            return ActionSpace(parts), lambda action: (np.reshape(action, space.shape) + start).astype(space.dtype)
        if isinstance(space, spaces.Discrete) and start == 0:
            return None
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating) and space.shape and space.low.size:
        with np.errstate(over="ignore", invalid="ignore"):
            bounds = np.array([space.low.ravel(), space.high.ravel()], np.float32)
            width = bounds[1] - bounds[0]
        if (np.isfinite(width) & (width > 0)).all():
            low, high = map(tuple, bounds.tolist())
            return ActionSpace((), low, high), lambda action: np.clip(  # float32 may round up
                np.reshape(action, space.shape).astype(space.dtype), space.low, space.high
            )
    raise UserError(
        f"the actions of the world {world!r} must be Discrete from 0 on, MultiDiscrete, MultiBinary (of up to "
        f"{MOST_CATEGORIES:,} values) or a Box of fractions with finite bounds, not {space}: convert them with a "
        f"wrapper, such as gymnasium.wrappers.RescaleAction ({WORLD_FLAG})"
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


def _flag(value: Any) -> bool:
    """A flag, also as an array of one element; raises TypeError or ValueError for anything else."""
    return value if type(value) is bool else bool(float(np.ravel(value).item()))


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


def _rows(screen: Any) -> list[Pieces]:
    """Returns the rows of a world's screen as pieces of text with their colours."""
    lines = screen.splitlines() if isinstance(screen, str) else screen
    pieces = ([(line, GREY)] if isinstance(line, str) else line for line in lines)
    return [[(str(text), operator.index(color) % COLOURS) for text, color in line] for line in pieces]


def quiet() -> contextlib.AbstractContextManager[Any]:
    """Suppresses what environments print."""
    return contextlib.redirect_stdout(io.StringIO())


# ---- games and worlds


class GymWorldGame(SequentialGame):
    """One environment as a `world.Game`."""

    def __init__(self, world: GymWorld, shown: bool):
        self._world = world
        self._fields, _, self._parts = world._spaces
        self._drawn = b""  # the last picture, unencoded
        self._trouble: list[Pieces] = []  # why a picture is missing
        env, self._draws = None, None
        if shown:
            with self._explained():
                env = world.make_shown()
                self._draws = getattr(env, "render_mode", None)
        with quiet():
            self._env: Any = world.make() if env is None else env
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
            observation, _ = self._env.reset(seed=seed.core % SEEDS)
        self.start_episode(episode)
        self._look(observation)

    def step(self, action: Any) -> float:
        result = self._env.step(self._parts[1](action) if self._parts else int(action))
        observation, paid, terminated, truncated, _ = result
        reward, ended, cut = float(paid), _flag(terminated), _flag(truncated)  # not None or an array
        if not abs(reward) <= LARGEST:
            raise ValueError(f"a reward must be a finite number of float32, not {reward}")
        self.count_step(reward)
        if ended:
            self.finish(_flag(self._world.succeeded(reward, self._state)), "the game ended")
        elif cut or self._steps >= self._world.time_limit:
            self.end = EndStatus.ABORTED
        self._look(observation)
        return reward

    def measure(self) -> tuple[float, ...]:
        kinds = self._world.figures
        values = [*self._world.measure(self._state)] if kinds else []
        if not all(abs(float(value)) <= LARGEST for value in values):
            raise ValueError(f"measure() must return finite numbers of float32, not {shown(values)}")
        return tuple(kind(value) for kind, value in zip(kinds.values(), values, strict=True))

    def draw(self, chance: float) -> Any:
        return self._parts[0].draw(chance) if self._parts else super().draw(chance)

    def screen(self) -> Screen:
        """Draws the caption, and below it the world's screen or the environment's text."""
        rows = _rows(self._world.screen(self._state)) + self._trouble
        if self._draws == "ansi":
            with self._explained():
                if (drawn := self._env.render()) is not None:
                    rows = pieces_of_ansi(drawn)
        return draw_screen(self.message.decode("latin-1"), rows)

    def picture(self) -> bytes:
        """Returns the environment's picture as WebP; empty if it has not changed, or without pictures."""
        if self._draws == "rgb_array":
            with self._explained():
                if (pixels := self._env.render()) is not None:
                    last, self._drawn = self._drawn, repr(pixels.shape).encode() + pixels.tobytes()
                    return encode_picture(pixels) if self._drawn != last else b""
        return b""

    def close(self) -> None:
        self._env.close()

    def _look(self, observation: Any) -> None:
        for name, field in self._fields.items():
            try:
                self.seen[name] = field.read(observation)
            except (TypeError, ValueError, OverflowError, AttributeError, LookupError) as error:
                raise UserError(
                    f"the world {self._world.name!r} gives an observation {name!r} that is not as its space says, of "
                    f"shape {field.spec.shape} and type {field.spec.dtype}: {message_of(error)} ({WORLD_FLAG})"
                ) from error
        caption = self._world.caption(observation, self._state)
        self.seen |= self.show_caption(caption.strip().encode("latin-1", "replace").replace(b"\0", b"")[:WIDTH])


class GymWorld(SequentialWorld):
    """A gymnasium environment with a caption for each moment; the attributes for subclasses are marked below."""

    # ---- set by a subclass
    id: str = ""  # of `gymnasium.make`
    about: str = ""  # description of the game for a language model; "": made from its id
    kinds: Mapping[str, str] = {}  # of observations whose kind cannot be inferred from their space: networks/kinds.py
    figures: Mapping[str, type] = {}  # numbers of an episode, returned by `measure`: name -> bool, int or float
    meanings: tuple[Meaning, ...] = ()  # what pages say about them
    texts: Path | None = None  # directory with goals, prompts and rules about this game
    numbers: Mapping[str, tuple[str, int]] = {}  # names of numbers; these three: `world.Viewpoint`
    viewpoints: Mapping[str, Viewpoint] = {}
    still: tuple[str, ...] = ()
    picture: str = AUTO  # "rgb_array" or "ansi": the environment's render mode; "": only `screen`
    # `reads` (the policy's observations) and `action_names` may be set too; see the properties below.

    # ---- the same for all subclasses
    pairs = ("message",)
    players = ("random",)

    def __init__(self, max_episode_steps: int = 5000, **options: Any):
        self.time_limit, self.options = max_episode_steps, options
        self.name = getattr(type(self), "name", self.id or f"{type(self).__module__}:{type(self).__qualname__}")
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
        Text(("", AUTO, *RENDER_MODES)).check("picture", WORLD_FLAG, self.picture)
        with quiet():
            env = self.make()
        with contextlib.closing(env):
            own_screen = type(self).screen is not GymWorld.screen
            modes = () if own_screen else (getattr(env, "metadata", None) or {}).get("render_modes") or ()
            preferred = next((mode for mode in RENDER_MODES if mode in modes), "")
            self._render_mode = (preferred if self.picture == AUTO else self.picture) or None
            fields = fields_of(env.observation_space, self.kinds, self.name)
            parts = action_parts_of(env.action_space, self.name)
            return fields, () if parts else self._names_of(env), parts

    def _names_of(self, env: Any) -> tuple[str, ...]:
        given: Any = type(self).action_names
        own, count = getattr(env.unwrapped, "actions", None), int(env.action_space.n)
        names = [f"action {number}" for number in range(count)]
        if given and not isinstance(given, property):
            names = given
        elif isinstance(own, type) and issubclass(own, enum.Enum):
            names = [action.name for action in own]
        elif callable(meanings := getattr(env.unwrapped, "get_action_meanings", None)):
            names = [name.lower() for name in meanings()]
        if len(names) != count:
            raise UserError(
                f"the world {self.name!r} names {len(names)} actions, {shown(names)}, but has {count} ({WORLD_FLAG})"
            )
        return tuple(names)

    def make_shown(self) -> gymnasium.Env:
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
