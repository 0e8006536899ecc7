"""Scripted players, which run in the workers: `random` for every world, others made by the world (`scripted`).

A mixture is written `explorer:0.8,random:0.2`; the player of an episode is drawn from the episode's seed, so that
episodes are reproducible.
"""

from __future__ import annotations

import contextlib
import random
from typing import Any, Protocol

from motif_jax.console import suggest
from motif_jax.envs.text_world import TextWorld
from motif_jax.envs.world import ActionSpace, GameSeed, Vector, World, space_of, to_row
from motif_jax.structs import UserError

FLAG = "--config.collect.collector"


class ScriptedPlayer(Protocol):
    """Plays one game; `frames`, if it has them, are the frames that it needs beside the observations."""

    def begin(self, rng: random.Random) -> None: ...  # a new episode; `rng` is the only source of randomness
    def choose(self, game: Any) -> Any: ...  # the number of the next action, or its text


class RandomPlayer:
    """Chooses all actions with equal probability."""

    def __init__(self, num_actions: int, space: ActionSpace | None):
        """`space`: of actions that are several choices or numbers."""
        self._num_actions, self._space = num_actions, space

    def begin(self, rng: random.Random) -> None:
        self._random = rng.random

    def choose(self, game: Any) -> Any:
        chance = self._random()
        return self._space.draw(chance) if self._space else int(chance * self._num_actions)


class ScriptedPlayers:
    """One scripted player per game of a group."""

    def __init__(self, text: str, world: World, num_games: int):
        shares = parse_scripted(text, world)
        self._names, self._shares = list(shares), list(shares.values())
        self._all = [{name: _make(name, world) for name in shares} for _ in range(num_games)]
        self._now = [next(iter(players.values())) for players in self._all]  # the current player of each game
        self.frames = tuple(frame for player in self._all[0].values() for frame in getattr(player, "frames", ()))
        self._width = world.written if isinstance(world, TextWorld) else 0

    def begin(self, game: int, seed: GameSeed) -> None:
        rng = random.Random(seed.player)
        name = rng.choices(self._names, self._shares)[0] if len(self._names) > 1 else self._names[0]
        self._now[game] = self._all[game][name]
        self._now[game].begin(rng)

    def act(self, vector: Vector) -> list[Any]:
        actions = [player.choose(game) for player, game in zip(self._now, vector.games, strict=True)]
        return [to_row(text, self._width) for text in actions] if self._width else actions

    def choose(self, index: int, game: Any) -> Any:
        return self._now[index].choose(game)


def parse_scripted(text: str, world: World, flag: str = FLAG) -> dict[str, float]:
    """Parses `explorer:0.8,random:0.2` into shares that sum to 1; a name without a weight has weight 1."""
    weights: dict[str, float] = {}
    for part in text.split(","):
        name, _, weight = part.strip().partition(":")
        if isinstance(world, TextWorld):
            world.scripted(name)  # raises UserError
        elif name not in world.players:
            raise UserError(f"unknown collector {name!r} ({flag}): {suggest(name, world.players)}")
        share = 0.0
        with contextlib.suppress(ValueError):
            share = float(weight or 1)
        if not 0 < share < float("inf"):
            raise UserError(f"the share of {name!r} must be a positive number, not {weight!r} ({flag})")
        weights[name] = weights.get(name, 0.0) + share
    total = sum(weights.values())
    return {name: weight / total for name, weight in weights.items()}


def _make(name: str, world: World) -> ScriptedPlayer:
    if isinstance(world, TextWorld):
        return world.scripted(name)
    if name == "random":
        return RandomPlayer(len(world.action_names), space_of(world))
    player: ScriptedPlayer = getattr(world, "scripted")(name)  # noqa: B009  `World` does not require it
    return player
