"""A text world whose agent chooses among texts instead of writing them, so that PPO can train it: docs/wordle.md.

The texts are the world's `moves`, the same in every step; one that does not fit a moment gets the game's own answer.

    prompt    the text that a language model continues with a move, as UTF-8: the game's first text and its last turns,
              a line each.  [L] uint8
"""

from __future__ import annotations

import functools
import json
import random
from collections.abc import Mapping, Sequence
from typing import Any

from motif_jax.config.table import Text, Whole, shown
from motif_jax.envs.own_code import OPTIONS_FLAG, owner
from motif_jax.envs.sequential import SequentialWorld
from motif_jax.envs.text_game import TextGame
from motif_jax.envs.text_world import TextWorld
from motif_jax.envs.world import (
    CAPTIONS,
    CHOICE,
    TEXT,
    GameSeed,
    SeedStream,
    World,
    game_seed,
    meanings_of,
    to_row,
    to_text,
)
from motif_jax.envs.worlds import make_world, parse_options
from motif_jax.structs import ArraySpec, Turn, UserError

SAMPLED = 64  # games of random play, whose prompts tell a new model its words
MOST_STEPS = 100  # of each
MOST_PROMPTS = 2000  # of all, as texts may be long
DEFAULT, WINDOW = "maze", 4


def prompt_of(turns: Sequence[Turn], window: int) -> str:
    """The first text, if it is the world's, and the last `window` texts of each side, a line each."""
    first = [] if not turns or turns[0].is_action else turns[:1]
    return "".join(f"{turn.text}\n" for turn in (*first, *turns[len(first) :][-2 * window :]))


class ChoicesGame:
    """A text game whose actions are numbers of moves. Implements `world.Game`."""

    def __init__(self, game: TextGame, world: ChoicesWorld):
        self._game, self._world = game, world
        self.seen: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # a copy has no `_game` yet
            raise AttributeError(name)
        return getattr(self._game, name)

    def reset(self, seed: GameSeed, episode: int = 0) -> None:
        self._game.reset(seed, episode)
        self._look()

    def step(self, action: Any) -> float:
        reward = self._game.step(self._world.action_names[int(action)])
        self._look()
        return reward

    def draw(self, chance: float) -> int:
        return int(chance * len(self._world.action_names))

    def _look(self) -> None:
        prompt = prompt_of(self._game.turns, self._world.window)
        self.seen = self._game.seen | {"prompt": to_row(prompt, self._world.width)}


class ChoicesWorld(SequentialWorld, World):
    """See the module docstring."""

    known_as = "choices"
    action = CHOICE
    reads = ("prompt",)
    pairs = ("message",)
    players = ("random",)

    def __init__(self, max_episode_steps: int = 5000, game: str = "", window: int = WINDOW, **options: Any):
        """`game`: of a text world, a name or module:Class. `window`: texts of each side in a prompt. `options`: its."""
        Text().check("game", OPTIONS_FLAG, game)
        Whole(1, 1000).check("window", OPTIONS_FLAG, window)
        if not game and (options or window != WINDOW):  # options of the command line replace a config's
            what = 'options of the world \'choices\' name the text game, as in {"game": "maze"}'
            raise UserError(f"{what} ({OPTIONS_FLAG})")
        game = game or DEFAULT
        self.inner = make_world(_section(game, options) | {"max_episode_steps": max_episode_steps})
        if not isinstance(self.inner, TextWorld):
            raise UserError(f"the world {game!r} is played by actions already, and not by writing ({OPTIONS_FLAG})")
        self.name, self.about, self.figures = self.inner.name, self.inner.about, self.inner.figures
        self.texts, self.window, self.meanings = self.inner.texts, window, meanings_of(self.inner)
        self.action_names = _moves(self.inner, game)
        self.width = (2 * window + 1) * (max(self.inner.written, self.inner.heard) + 1)  # bytes of the longest prompt
        self.specs = {"prompt": ArraySpec((self.width,), "uint8", TEXT)} | CAPTIONS

    @staticmethod
    def own_game(env: Mapping[str, Any]) -> tuple[str, str] | None:
        options = parse_options(env.get("options", "{}"))
        named = owner(_section(str(options.pop("game", DEFAULT)), options))
        return named and (named[0], OPTIONS_FLAG)

    @staticmethod
    def title(env: Mapping[str, Any]) -> str:
        return str(parse_options(env.get("options", "{}")).get("game", DEFAULT))

    def game(self, shown: bool = True) -> Any:
        game: Any = self.inner.game(shown)  # a `TextGame`
        return ChoicesGame(game, self)

    @functools.cached_property
    def words(self) -> tuple[str, ...]:
        """The moves, and the prompts of games of random play: a new language model has their words."""
        rng, game, prompts = random.Random(0), self.game(shown=False), dict.fromkeys(self.action_names)
        for number in range(SAMPLED):
            game.reset(game_seed(0, SeedStream.COLLECT, number), number)
            while not game.end and game.steps <= MOST_STEPS and len(prompts) < MOST_PROMPTS:
                prompts[to_text(game.seen["prompt"])] = None
                game.step(game.draw(rng.random()))
        game.close()
        return tuple(prompts)


def _section(game: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The section `env` of the text world."""
    return {"world": game, "options": json.dumps(options)}


def _moves(world: TextWorld, name: str) -> tuple[str, ...]:
    """The texts to choose among; raises UserError if the world has none, or if they cannot be written."""
    moves = world.moves
    if not moves:
        raise UserError(
            f'the world {name!r} has no texts to choose among: give its class moves = ("north", "south"), or let the '
            f"policy write ({OPTIONS_FLAG}, --config)"
        )
    listed = isinstance(moves, (tuple, list)) and all(isinstance(move, str) and move for move in moves)
    if not listed or len({*moves}) < max(len(moves), 2):
        raise UserError(
            f"moves of the world {name!r} must be two or more different texts, not {shown(moves)} ({OPTIONS_FLAG})"
        )
    if long := [move for move in moves if to_text(to_row(move, world.written)) != move]:
        raise UserError(
            f"the move {shown(long[0])} of the world {name!r} has more than {world.written} bytes, which is the most "
            f"that its agent writes (`written`) ({OPTIONS_FLAG})"
        )
    return tuple(moves)
