"""What a game is to everybody else: the protocols of a world, of a group of its games, and of one game that is shown.

A world says which observations and actions there are, makes groups of games that step together (`Vector`, in actor
workers) and single games that can be played again and shown (`Game`, for replays). Observations have names. A plain
name stands for what a player sees before its next action; with the prefix `event_`, for what the last action led to,
also when it ended the episode (the plain name then already shows the next episode's first moment). Every world has the
observations of CAPTIONS: the caption of a moment is its message.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from motif_jax.captions import WIDTH
from motif_jax.envs.seeding import GameSeed
from motif_jax.structs import ArraySpec, EndStatus, EpisodeInfo, UserError

CHOICE = ArraySpec((), "int32")  # an action that is one of `World.action_names`
TEXT = "text"  # kind of an array that holds UTF-8, filled up with zeros; of an action that is written: `text_action`
MESSAGE = {
    "message": ArraySpec((WIDTH,), "uint8"),  # filled up with zeros
    "message_count": ArraySpec((), "int32"),  # times this message was seen in this episode, now included
}
CAPTIONS = MESSAGE | {f"event_{key}": spec for key, spec in MESSAGE.items()}
SCREEN_SHAPE = 24, 80

Rows = dict[str, Any]  # what stands in one row of a rollout for each game of a group, as `Vector.open_rows` makes it


class Screen(NamedTuple):
    """A picture of a game for people: a terminal of 24 x 80 characters."""

    chars: np.ndarray  # character codes. [24, 80] uint8
    colors: np.ndarray  # 0..15, and 16..31 the same reversed. [24, 80] uint8
    cursor: np.ndarray  # row and column. [2] uint8


class Game(Protocol):
    """One game, which can be played again from the seed of an episode and its actions, and be shown."""

    @property
    def end(self) -> EndStatus: ...  # of the episode, after the last step
    @property
    def message(self) -> bytes: ...  # caption of the last moment; at the end of an episode, of its last
    @property
    def message_count(self) -> int: ...  # times this message was seen in this episode, now included
    @property
    def cause(self) -> str: ...  # of the episode's end, as in "killed by a jackal"; "" if there is nothing to say
    def reset(self, seed: GameSeed, episode: int) -> None: ...
    def step(self, action: Any) -> float: ...
    def info(self) -> EpisodeInfo: ...
    def screen(self) -> Screen: ...  # at the end of an episode, its last
    def close(self) -> None: ...


class Vector(Protocol):
    """A group of games that step together, each of which begins a new episode where one ended."""

    first: np.ndarray  # whether what `observe` writes begins an episode. [E] bool
    finished: list[tuple[int, EpisodeInfo]]  # episodes that the last step ended, with the game's index

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
    """A game as all stages see it. Making one is cheap: games are made by `vector` and `game` only."""

    name: str
    about: str  # what the game is, as a language model is told: "the game NetHack"
    action: ArraySpec  # of one action: CHOICE, or `text_action`
    action_names: tuple[str, ...]  # what can be chosen; () where an action is text
    figures: Mapping[str, type]  # numbers of an episode beside those of every world: name -> bool, int or float
    specs: Mapping[str, ArraySpec]  # all observations that can be recorded; CAPTIONS among them
    reads: tuple[str, ...]  # observations that a policy reads unless its network says otherwise
    pairs: tuple[str, ...]  # observations that a dataset keeps of its moments: "message", and others of NetHack's
    players: tuple[str, ...]  # scripted players; "random" among them
    texts: Path | None  # directory with goals and prompts about this world; None: only what suits any world

    def check(self) -> None:
        """Raises UserError for settings that cannot work, before anything is started."""

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
          seed, stream: with an episode's number, say which game it is (`seeding.game_seed`).
          next_episode: number of the episode that game i plays next; by default 0, 1, 2, ... as they are asked for.
          extra_frames: what the scripted player reads beside the observations.
          stepping: a writable sequence whose first item is kept at the index of the game being stepped, plus 1.
        """

    def game(self, shown: bool = True) -> Game:
        """Makes one game; if it is never `shown`, only its messages and figures are wanted."""

    def plays(self, facts: Mapping[str, Any]) -> str:
        """Says why a policy whose checkpoint has these facts cannot play here; "" if it can."""


def text_action(width: int) -> ArraySpec:
    """The action of a world that is played by writing: a text of up to `width` bytes, as `to_row` gives it."""
    return ArraySpec((width,), "uint8", TEXT)


def is_text(action: ArraySpec) -> bool:
    """Whether an action is a text, not a choice."""
    return action.kind == TEXT


def to_row(text: str, width: int) -> np.ndarray:
    """A text as an array: UTF-8, cut after `width` bytes, filled up with zeros. [width] uint8"""
    data = text.encode("utf-8", "replace")
    if len(data) > width:  # no half of a character
        data = data[:width].decode("utf-8", "ignore").encode()
    return np.frombuffer(data.ljust(width, b"\0"), np.uint8)


def to_text(row: Any) -> str:
    """The text of an array, or of a list of its numbers; what is not UTF-8 becomes U+FFFD, zeros are dropped."""
    return bytes(row).replace(b"\0", b"").decode("utf-8", "replace")


def step_specs(action: ArraySpec = CHOICE) -> dict[str, ArraySpec]:
    """What is recorded of every step, whichever observations are asked for."""
    return {
        "action": action,
        "reward": ArraySpec((), "float32"),
        "terminated": ArraySpec((), "bool"),
        "truncated": ArraySpec((), "bool"),
    }


def select_specs(specs: Mapping[str, ArraySpec], keys: Iterable[str]) -> dict[str, ArraySpec]:
    """The specs of the named observations, in the given order; raises UserError for an unknown name."""
    found = {}
    for key in keys:
        if key not in specs:
            near = difflib.get_close_matches(key, specs, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(specs)}"
            raise UserError(f"unknown observation {key!r} (observations): {hint}")
        found[key] = specs[key]
    return found


def plain_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of an observation for other libraries.

    They want one dimension at least, and take three for a picture, which a crop of characters and colours is not.
    """
    return shape if 1 <= len(shape) <= 2 else (math.prod(shape),)


def trained_world(facts: Mapping[str, Any]) -> str:
    """The world that a policy was trained in, from the facts of its checkpoint; older ones do not name it."""
    env = facts["config"]["env"]
    return str(env.get("world", "nethack"))
