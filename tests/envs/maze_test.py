"""The maze and the treasure: the best and random walks, rewards, readings of each step, and what the worlds say."""

import copy
import random

import numpy as np
import pytest

from motif_jax.actors.recorder import play_episodes
from motif_jax.envs.maze import FREE, GOAL, MOST, distances
from motif_jax.envs.treasure import ACTIONS, DOWN, STEPS, TreasureGame
from motif_jax.envs.world import SeedStream, game_seed, step_specs
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


EAST, WEST, SEARCH = (ACTIONS.index(name) for name in ("east", "west", "search"))


def test_the_best_return_is_29_by_brute_force():
    """All moments are played on with all actions, step by step; `ends`: returns by gold and stairs.

    Moments with the same hero and the same squares after equally many steps are one, because the rules know nothing
    else. The hero stays with every action but east and west.
    """
    moments, ends = {"start": TreasureGame()}, {}
    moments["start"].reset(game_seed(0, SeedStream.TRAIN, 0))
    while moments:
        after = {}
        for game in moments.values():
            for action in (EAST, WEST, SEARCH):
                other = copy.deepcopy(game)
                other.step(action)
                if other.end:
                    _, _, total, _, _, figures = other.info()
                    assert ends.setdefault(figures, total) == total
                else:
                    after[other.seen["numbers"].tobytes(), other._squares.tobytes()] = other
        moments = after
    assert max(ends.values()) == ends[9, True] == 29
    assert max(gold for gold, stairs in ends if stairs) == 9


def test_the_readings_of_each_step_make_up_the_reward():
    """One game only goes east, the other west; the first lasts 40 steps, and the second begins anew after every 4."""
    world = make_world({"world": "treasure"})
    specs = (world.specs | step_specs()).items()
    arrays = {name: np.zeros((STEPS, 2, *spec.shape), spec.dtype) for name, spec in specs}
    vector = world.vector(2, tuple(world.specs), seed=5, stream=SeedStream.TRAIN)
    vector.reset()
    for number in range(STEPS):
        rows = {name: array[number] for name, array in arrays.items()}
        vector.observe(rows)
        vector.step([EAST, WEST], rows)
    np.testing.assert_array_equal(arrays["reward"], arrays["event_gold"] + 20 * arrays["event_stairs"])
    assert arrays["event_gold"].tolist() == [[1, 0], [0, 0]] * 20
    assert arrays["event_stairs"].tolist() == ([[0, 0]] * 3 + [[0, 1]]) * 10
    assert np.argwhere(arrays["terminated"][:, 0]).tolist() == [[39]]
    np.testing.assert_array_equal(arrays["terminated"][:, 1], arrays["event_stairs"][:, 1])
    assert not arrays["truncated"].any()
    assert bytes(arrays["event_message"][3, 1]).rstrip(b"\0") == DOWN
    assert arrays["numbers"][3:5, 1].tolist() == [[1, 37, 0], [4, 40, 0]]  # the observation is of the next episode
