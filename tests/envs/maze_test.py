"""The maze: the best and random walks, rewards, and what the world says."""

import random

import pytest

from motif_jax.actors.recorder import play_episodes
from motif_jax.envs.maze import FREE, GOAL, MOST, distances
from motif_jax.envs.world import SeedStream, game_seed
from motif_jax.envs.worlds import make_world
from motif_jax.structs import EndStatus

pytestmark = pytest.mark.quick


def begun(start):
    game, episode = make_world({"world": "maze"}).game(), 0
    while True:
        game.reset(game_seed(3, SeedStream.EVALUATE, episode), episode)
        if game.hidden.start == start:
            return game
        episode += 1


def test_the_best_walks_cost_as_much_as_published():
    """-6.84 on average over all starts; the worst walk costs 101."""
    starts = [cell for cell in FREE if cell != GOAL]
    assert len(starts) == 25
    assert sum(distances()[cell] - 1 for cell in starts) / 25 == 6.84
    player = make_world({"world": "maze"}).scripted("optimal")
    player.begin(random.Random(0))
    for start in starts:
        game, total = begun(start), 0.0
        while not game.end:
            total += game.step(player.choose(game))
        assert game.end == EndStatus.TASK_SUCCESSFUL
        assert total == 1 - distances()[start]
    walks = [one.episode_return for one in play_episodes(make_world({"world": "maze"}), "random", range(400), seed=5)]
    assert -92 < sum(walks) / 400 < -78, "the published data have -83"
    assert min(walks) == -101


def test_moves_walls_and_other_texts():
    game = begun((1, 1))
    assert game.heard == "goal 8 6 at 1 1 walls above below left"
    assert game.step("left") == -1
    assert game.heard == "at 1 1 walls above below left"
    assert game.step("right") == -1
    assert game.heard == "at 1 2 walls above below"
    assert game.step("move right") == -4
    assert game.heard == "at 1 2 walls above below"
    assert game.info().figures == (12, 1)
    assert game.message == b'"move right" is no move'
    assert "@" in "".join(map(chr, game.screen().chars[4]))
    for _ in range(MOST - 3):
        assert game.step("up") == -1
        assert not game.end
    assert game.step("right") == -1
    assert (game.end, game.heard) == (EndStatus.ENDED, "failure")
    game = begun((7, 6))
    assert game.step("down") == 0
    assert (game.end, game.heard) == (EndStatus.TASK_SUCCESSFUL, "success")
