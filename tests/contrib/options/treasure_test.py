"""The treasure hunt: the best return, and readings of each step."""

import copy

import numpy as np
import pytest
from conversation_test import check_conversation

from motif_jax.contrib.options.treasure import ACTIONS, DOWN, STEPS, TreasureGame
from motif_jax.envs.world import SeedStream, game_seed, step_specs
from motif_jax.envs.worlds import make_world

pytestmark = pytest.mark.quick
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


def test_a_conversation_has_the_rewards_of_the_game():
    check_conversation({"world": "treasure"})
