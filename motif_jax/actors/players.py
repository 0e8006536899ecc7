"""Scripted players, which run in the workers beside their games: `random`, `explorer`, or a mixture of them.

A mixture is written `explorer:0.8,random:0.2`; which of them plays an episode is drawn from the episode's own seed, so
an episode is the same wherever and whenever it is played.
"""

from __future__ import annotations

import difflib
import random
from typing import Any, Protocol

from motif_jax.envs.seeding import GameSeed
from motif_jax.envs.vector import GameVector
from motif_jax.structs import UserError

PLAYERS = ("random", "explorer")


class Player(Protocol):
    """Plays one game."""

    def begin(self, rng: random.Random) -> None: ...
    def choose(self, game: Any) -> int: ...


class RandomPlayer:
    """Chooses all actions with equal probability."""

    def begin(self, rng: random.Random) -> None:
        """Starts a new episode; `rng` is its only source of randomness."""
        self._random = rng.random

    def choose(self, game: Any) -> int:
        """Returns the number of the next action."""
        return int(self._random() * game.num_actions)


class Players:
    """One player per game of a group."""

    def __init__(self, weights: dict[str, float], num_games: int):
        self._names, self._weights = list(weights), list(weights.values())
        self._minds = [{name: _make(name) for name in weights} for _ in range(num_games)]
        self._now: list[Player] = [next(iter(minds.values())) for minds in self._minds]
        self.frames = ("glyphs",) if "explorer" in weights else ()

    def begin(self, game: int, seed: GameSeed) -> None:
        """Game `game` starts a new episode."""
        rng = random.Random(seed.player)
        name = rng.choices(self._names, self._weights)[0] if len(self._names) > 1 else self._names[0]
        self._now[game] = self._minds[game][name]
        self._now[game].begin(rng)

    def act(self, vector: GameVector) -> list[int]:
        """One action per game."""
        return [player.choose(game) for player, game in zip(self._now, vector.games, strict=True)]


def make_player(text: str, num_games: int) -> Players:
    """Creates the players of a group from a description such as `explorer:0.8,random:0.2`."""
    return Players(parse_players(text), num_games)


def parse_players(text: str) -> dict[str, float]:
    """`explorer:0.8,random:0.2` -> shares that sum to 1; a bare name has weight 1."""
    weights: dict[str, float] = {}
    for part in text.split(","):
        name, _, weight = part.strip().partition(":")
        if name not in PLAYERS:
            near = difflib.get_close_matches(name, PLAYERS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(PLAYERS)}"
            raise UserError(f"unknown collector {name!r} (--config.collect.collector): {hint}")
        if name in weights:
            raise UserError(f"{text!r} names {name!r} twice (--config.collect.collector)")
        try:
            weights[name] = float(weight or 1)
        except ValueError:
            weights[name] = -1.0
        if not 0 < weights[name] < float("inf"):
            raise UserError(
                f"the share of {name!r} must be a positive number, not {weight!r} (--config.collect.collector)"
            )
    total = sum(weights.values())
    return {name: weight / total for name, weight in weights.items()}


def _make(name: str) -> Player:
    if name == "random":
        return RandomPlayer()
    from motif_jax.actors.explorer import ExplorerPlayer

    return ExplorerPlayer()
