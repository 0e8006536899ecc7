"""Plays text worlds with scripted players, and records each episode as turns.

This needs neither workers nor arrays, so a core plays tens of thousands of short games per second. The games are the
same as in a pool with the same seed and player and the stream COLLECT.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from motif_jax.actors.players import ScriptedPlayers
from motif_jax.envs.seeding import SeedStream, game_seed
from motif_jax.envs.text_game import TextGame
from motif_jax.envs.text_world import TextWorld
from motif_jax.structs import Episode, UserError

# A branch's seed follows from its number, which is beyond those of episodes.
FIRST_BRANCH, BRANCHES = 2**50, 2**10  # number of the first branch; exclusive limit of an episode's branches


def play_episodes(world: TextWorld, player: str, episodes: Iterable[int], *, seed: int) -> Iterator[Episode]:
    """Plays episodes one after another.

    Numbers and seed determine the games. `player`: as for `players.parse_scripted`.
    """
    game, players = world.game(shown=False), ScriptedPlayers(player, world, 1)
    try:
        for number in episodes:
            _begin(game, players, number, seed)
            _go_on(game, players)
            yield game.record()
    finally:
        game.close()


def play_branches(
    world: TextWorld, expert: str, other: str, episodes: Iterable[int], *, per_moment: int = 1, seed: int
) -> Iterator[Episode]:
    """Plays each episode with one player, and branches off before each of its texts with another.

    So the values of the same state can be compared between the two players. `per_moment`: branches from each state.

    Yields:
      The expert's episode, then its branches. Their `info` has `episode`; `branch`, the number of the branch from 1 on,
      or 0 for the expert's episode; and `shared`, the number of first turns in common with the expert's episode.
    """
    game = world.game(shown=False)
    experts, others = ScriptedPlayers(expert, world, 1), ScriptedPlayers(other, world, 1)
    try:
        for number in episodes:
            _begin(game, experts, number, seed)
            states = []
            while not game.end:
                states.append(game.state())
                game.say(experts.choose(0, game))
            yield game.record(shared=0, branch=0)
            starts = (state for state in states for _ in range(per_moment))
            for branch, start in enumerate(starts, 1):
                if branch >= BRANCHES:
                    raise UserError(f"an episode has at most {BRANCHES - 1:,} branches, fewer per moment are needed")
                own = game_seed(seed, SeedStream.COLLECT, FIRST_BRANCH + number * BRANCHES + branch)
                others.begin(0, own)
                game.begin(own, number)
                game.set_state(start)
                _go_on(game, others)
                yield game.record(shared=len(start.turns), branch=branch)
    finally:
        game.close()


def _begin(game: TextGame, players: ScriptedPlayers, number: int, seed: int) -> None:
    seeds = game_seed(seed, SeedStream.COLLECT, number)
    players.begin(0, seeds)
    game.begin(seeds, number)


def _go_on(game: TextGame, players: ScriptedPlayers) -> None:
    while not game.end:
        game.say(players.choose(0, game))
