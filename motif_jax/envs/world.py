"""The World interface: protocols of a world, of a group of its games, and of one game that is shown.

A world declares its observations and actions, and makes groups of games that step together (`Vector`, in actor workers)
and single games that can be replayed and shown (`Game`). Observations have names. A plain name is the observation
before the player's next action. With the prefix `event_` it is the result of the last action, also at the end of an
episode, when the plain name already shows the next episode's first moment. Every world has the observations CAPTIONS:
the message of a moment is its caption.
"""

from __future__ import annotations

import enum
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from motif_jax.captions import WIDTH
from motif_jax.console import suggest
from motif_jax.structs import ArraySpec, EndStatus, EpisodeInfo, Meaning, UserError

# Seeds of games: (run seed, stream, episode) -> the seeds of NetHack's generators and of a scripted player.
#
# The lowest bit of the core seed marks evaluation, so training and evaluation games are disjoint for all run seeds.


class SeedStream(enum.IntEnum):
    """The purpose of a game."""

    COLLECT = 0
    TRAIN = 1
    EVALUATE = 2


class GameSeed(NamedTuple):
    """All seeds of one episode."""

    core: int  # dungeon, monsters, dice
    disp: int  # the display's generator (hallucination, ...)
    player: int  # for a scripted player


def game_seed(run_seed: int, stream: int, episode: int) -> GameSeed:
    """Returns the seeds of one episode; the same on every machine."""
    words = np.random.SeedSequence((run_seed, stream, episode)).generate_state(3, np.uint64)
    core, disp, player = (int(word) >> 1 for word in words)  # NetHack takes signed 64-bit seeds
    return GameSeed(core & ~1 | (stream == SeedStream.EVALUATE), disp, player)


# Actions that are several choices, or several numbers, instead of a single choice.
#
# A world with such actions has the attribute `action_space`, and `action = action_space.spec`. Recorded actions are
# what the game takes: numbers within their bounds, or the numbers of choices from 0 on.

DECIMALS = 2  # of numbers in replays


class ActionSpace(NamedTuple):
    """Either `sizes`, or `low` and `high`."""

    sizes: tuple[int, ...] = ()  # number of values of each choice
    low: tuple[float, ...] = ()  # bounds of each number
    high: tuple[float, ...] = ()

    @property
    def spec(self) -> ArraySpec:
        return ArraySpec((len(self.sizes),), "int32") if self.sizes else ArraySpec((len(self.low),), "float32")

    @property
    def outputs(self) -> int:
        """The number of a network's outputs for an action: logits, or mean and scale of each number."""
        return sum(self.sizes) if self.sizes else 2 * len(self.low)

    def record(self) -> dict[str, list[float]]:
        """Returns keyword arguments for `ActionSpace` in JSON, for the metadata of checkpoints."""
        return {name: list(values) for name, values in self._asdict().items() if values}

    def draw(self, chance: float) -> list[Any]:
        """Returns a uniformly distributed action, for a number in [0, 1)."""
        draw = random.Random(chance).random
        if self.sizes:
            return [int(draw() * size) for size in self.sizes]
        return [float(np.float32(low + (high - low) * draw())) for low, high in zip(self.low, self.high, strict=True)]


def space_of(world: Any) -> ActionSpace | None:
    """Returns a world's space of actions; None if its actions are single choices or texts."""
    return getattr(world, "action_space", None)


def space_from(model: Mapping[str, Any]) -> ActionSpace | None:
    """Returns the space in a model's metadata, if any; raises ValueError if the model lacks its outputs."""
    if "action_space" not in model:
        return None
    space = ActionSpace(**{name: tuple(values) for name, values in model["action_space"].items()})
    bounded = len(space.low) == len(space.high) and bool(space.sizes) != bool(space.low)
    if not bounded or space.outputs != model["num_actions"]:
        raise ValueError(f"the action_space {space} does not belong to {model['num_actions']} outputs")
    return space


def spell(action: np.ndarray) -> str:
    """Formats an action as text, such as "2, 0" or "-0.50, 1.00"."""
    digits = "d" if np.issubdtype(action.dtype, np.integer) else f".{DECIMALS}f"
    return ", ".join(f"{number:{digits}}" for number in action.tolist())


CHOICE = ArraySpec((), "int32")  # an action: an index into `World.action_names`
WAIT = -1  # in place of an action: the game stands still
TEXT = "text"  # kind of an array of UTF-8 padded with zeros, also of a written action (`text_action`)
MESSAGE = {
    "message": ArraySpec((WIDTH,), "uint8"),  # padded with zeros
    "message_count": ArraySpec((), "int32"),  # times this message was seen in this episode, including now
}
CAPTIONS = MESSAGE | {f"event_{key}": spec for key, spec in MESSAGE.items()}
SCREEN_SHAPE = 24, 80

Rows = dict[str, Any]  # one row of a rollout for all games of a group, opened by `Vector.open_rows`


class Screen(NamedTuple):
    """A picture of a game for people: a terminal of 24 x 80 characters."""

    chars: np.ndarray  # character codes. [24, 80] uint8
    colors: np.ndarray  # 0..15, and 16..31 the same reversed. [24, 80] uint8
    cursor: np.ndarray  # row and column. [2] uint8


class Viewpoint(NamedTuple):
    """The agent's cell in a grid, from which distances count.

    A world may name what it shows, for whoever reads it by name, in attributes that are not part of the protocol:

        numbers     names of numbers in its observations: {"gold": ("blstats", 13)}
        viewpoints  of its grids: {"image": Viewpoint(3, 6, plane=0)}
        still       names of what is equal after a step in which nothing happened: ("row", "column")
    """

    row: int | str  # along the grid's first axis of cells; or the name of one of the world's numbers
    column: int | str
    plane: int | None = None  # the plane to search, of a grid with three axes
    planes_first: bool = False  # whether the first axis is that of planes, and not the last


class Game(Protocol):
    """One game that can be shown, and replayed from an episode's seed and actions."""

    @property
    def end(self) -> EndStatus: ...  # of the episode, after the last step
    @property
    def message(self) -> bytes: ...  # the current caption; at the end of an episode, its last
    @property
    def message_count(self) -> int: ...  # times this message was seen in this episode, including now
    @property
    def cause(self) -> str: ...  # of the episode's end, such as "killed by a jackal"; "" if unknown
    def reset(self, seed: GameSeed, episode: int) -> None: ...
    def step(self, action: Any) -> float: ...
    def info(self) -> EpisodeInfo: ...
    def screen(self) -> Screen: ...  # at the end of an episode, its last
    def close(self) -> None: ...


class Vector(Protocol):
    """A group of games that step together; each begins a new episode after the end of one."""

    first: np.ndarray  # whether the current observations are an episode's first. [E] bool
    finished: list[tuple[int, EpisodeInfo]]  # episodes ended by the last step, with the game's index

    @property
    def games(self) -> Sequence[Any]: ...  # for scripted players
    def open_rows(self, rows: dict[str, np.ndarray]) -> Rows: ...
    def reset(self) -> None: ...
    def seed_of(self, episode: int) -> GameSeed: ...
    def play_on(self, index: int, chances: Iterable[float]) -> None: ...
    def observe(self, rows: Rows) -> None: ...
    def step(self, actions: Sequence[Any], rows: Rows) -> None: ...
    def close(self) -> None: ...


class World(Protocol):
    """The interface of a game to all stages. Making a World is cheap: only `vector` and `game` make games.

    A world may have more than the protocol requires:

        of_section(env), title(env)   class methods: it is made from the whole section `env`; what is played, in a word
        own_game(env)                 name and flag of a user's code that the world runs (own_code.py)
        scripted(name)                makes a scripted player of `players`, other than "random"
        words, probes                 texts with all words of its prompts; fixed prompts, which training logs
        meanings                      what pages say about its figures, a `Meaning` for each, in the order of the page
        varies                        whether its values can vary in evaluation (protocols.py)
        packages, character           what datasets record of the game
        library                       which library games load, in a line
    """

    name: str
    about: str  # description for a language model, such as "the game NetHack"
    action: ArraySpec  # of one action: CHOICE, or `text_action`
    action_names: tuple[str, ...]  # () if an action is text
    figures: Mapping[str, type]  # additional numbers of an episode: name -> bool, int or float
    specs: Mapping[str, ArraySpec]  # all observations that can be recorded, including CAPTIONS
    reads: tuple[str, ...]  # observations that a policy reads by default
    pairs: tuple[str, ...]  # observations stored in a dataset: "message", and others of NetHack
    players: tuple[str, ...]  # scripted players, including "random"
    texts: Path | None  # directory with goals and prompts about this world; None: only general ones

    def check(self) -> None:
        """Raises UserError for invalid settings, before anything is started."""

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
    ) -> Vector:
        """Makes a group of games; `reset` begins the first episodes.

        Args:
          num_games: games in the group.
          observations: names from `specs`.
          seed, stream: with an episode's number, determine its game (`game_seed`).
          next_episode: game index -> number of its next episode; by default 0, 1, 2, ... in order of calls.
          extra_frames: additional arrays for the scripted player.
          stepping: a writable sequence whose first item is set to the index of the game being stepped, plus 1.
        """

    def game(self, shown: bool = True) -> Game:
        """Makes one game; without `shown`, only its messages and figures are used."""

    def plays(self, metadata: Mapping[str, Any]) -> str:
        """Returns why a policy with this checkpoint metadata cannot play in this world; "" if it can."""


def meanings_of(world: Any) -> tuple[Meaning, ...]:
    """What a world says about its figures."""
    return tuple(getattr(world, "meanings", ()))


def text_action(width: int) -> ArraySpec:
    """Returns the action spec of a text world: a text of up to `width` bytes, encoded by `to_row`."""
    return ArraySpec((width,), "uint8", TEXT)


def is_text(action: ArraySpec) -> bool:
    """Whether an action is a text rather than a choice."""
    return action.kind == TEXT


def to_row(text: str, width: int) -> np.ndarray:
    """Encodes a text as UTF-8, cut after `width` bytes and padded with zeros. [width] uint8"""
    data = text.encode("utf-8", "replace")
    if len(data) > width:  # drops a character that was cut
        data = data[:width].decode("utf-8", "ignore").encode()
    return np.frombuffer(data.ljust(width, b"\0"), np.uint8)


def to_text(row: Any) -> str:
    """Decodes an array, or a list of its numbers; invalid UTF-8 becomes U+FFFD, zeros are dropped."""
    return bytes(row).replace(b"\0", b"").decode("utf-8", "replace")


def waited(actions: np.ndarray) -> np.ndarray:
    """Whether the game stood still in each step; texts, and actions of several parts, never let it wait.

    [T, B, ...] -> [T, B] bool
    """
    return actions == WAIT if actions.ndim == 2 else np.zeros(actions.shape[:2], bool)


def step_specs(action: ArraySpec = CHOICE) -> dict[str, ArraySpec]:
    """Returns the specs that are recorded in every step, in addition to observations."""
    return {
        "action": action,
        "reward": ArraySpec((), "float32"),
        "terminated": ArraySpec((), "bool"),
        "truncated": ArraySpec((), "bool"),
    }


def select_specs(specs: Mapping[str, ArraySpec], keys: Iterable[str]) -> dict[str, ArraySpec]:
    """Returns the specs of the named observations, in the given order; raises UserError for an unknown name."""
    keys = tuple(keys)
    for key in keys:
        if key not in specs:
            raise UserError(f"unknown observation {key!r} (observations): {suggest(key, specs)}")
    return {key: specs[key] for key in keys}


def plain_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the shape of an observation for other libraries.

    They need at least one dimension, and would take three for a picture, which NetHack's crop is not.
    """
    return shape if 1 <= len(shape) <= 2 else (math.prod(shape),)


def cannot_play(metadata: Mapping[str, Any], world: Any, *alike: str) -> str:
    """Returns why a policy with this checkpoint metadata cannot play in a world; "" if it can.

    It was trained in this world or in one of those that are `alike`. A user's world has the name of the config
    (`known_as`, which `worlds.make_world` sets), and that of its class.
    """
    trained, known_as = metadata["config"]["env"].get("world", "nethack"), getattr(world, "known_as", "")
    class_name = f"{type(world).__module__}:{type(world).__qualname__}"
    if trained not in (*alike, world.name, known_as, class_name):
        return f"was trained in the world {trained!r}, not {known_as or world.name!r}"
    model = metadata["model"]
    actions = model.get("num_actions")
    if is_text(world.action):
        return f"chooses among {actions} actions, but the world {world.name!r} is played by writing" if actions else ""
    if actions is None:
        return f"writes texts, but the world {world.name!r} is played by choosing actions"
    for name, (shape, dtype, *_) in model.get("reads", {}).items():
        spec = world.specs.get(name)
        if spec is None or ([*spec.shape], spec.dtype) != ([*shape], dtype):
            return f"reads the observation {name!r} of shape {tuple(shape)} and type {dtype}, which does not exist"
    space = space_of(world)
    if space_from(model) != space:
        return f"has actions of other parts than the world {world.name!r}"
    prompts = model.get(model.get("network")) or {}  # the description of a network that reads prompts
    by_name = prompts.get("head", "score") == "score" and "actions" in prompts
    if not space and not by_name and actions != len(world.action_names):
        return f"has {actions} actions, but the world {world.name!r} has {len(world.action_names)}"
    return ""


# Screens of 24 x 80 characters, drawn from rows of text with colours.

WHITE, GREY = 15, 7
LAST = SCREEN_SHAPE[0] - 1, SCREEN_SHAPE[1] - 1  # row and column
Pieces = list[tuple[str, int]]  # of a row: texts with colours 0..15, or 16..31 for the same reversed


def draw_screen(message: str, drawn: Sequence[Pieces]) -> Screen:
    """Draws a message in the first two rows, and centred rows below.

    Args:
      message: up to 160 characters in Latin-1; other characters become "?".
      drawn: up to 21 rows; the widest is centred, the others are aligned with its left end.
    """
    columns = SCREEN_SHAPE[1]
    widest = max((sum(len(text) for text, _ in pieces) for pieces in drawn), default=0)
    margin = (" " * ((columns - widest) // 2), GREY)
    lines = [[(message[:columns], WHITE)], [(message[columns : 2 * columns], WHITE)], []]
    return fill_screen([*lines, *([margin, *pieces] for pieces in drawn)])


def fill_screen(drawn: Sequence[Pieces], cursor: tuple[int, int] = LAST) -> Screen:
    """Draws rows from the first on; what does not fit on the screen is left out."""
    chars, colors = np.full(SCREEN_SHAPE, ord(" "), np.uint8), np.zeros(SCREEN_SHAPE, np.uint8)
    for number, pieces in enumerate(drawn[: len(chars)]):
        at = 0
        for text, color in pieces:
            codes = np.frombuffer(text.encode("latin-1", "replace")[: SCREEN_SHAPE[1] - at], np.uint8)
            chars[number, at : at + len(codes)] = codes
            colors[number, at : at + len(codes)] = color
            at += len(codes)
    return Screen(chars, colors, np.array(cursor, np.uint8))
