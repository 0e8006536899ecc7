"""The world `treasure`: its readings of each step, and its optimum by brute force."""

import copy
import functools

import numpy as np
import pytest

from motif_jax.envs.treasure.world import ACTIONS, DOWN, STEPS, TreasureGame
from motif_jax.envs.world import SeedStream, game_seed, step_specs
from motif_jax.envs.worlds import make_world

pytestmark = pytest.mark.quick
EAST, WEST, SEARCH = (ACTIONS.index(name) for name in ("east", "west", "search"))


def new_game(**settings) -> TreasureGame:
    game = TreasureGame(**settings)
    game.reset(game_seed(0, SeedStream.TRAIN, 0))
    return game


@functools.cache
def all_ends() -> dict[tuple[int, bool], float]:
    """The return of every end that can be played to, by its gold and whether the stairs were reached.

    All moments are played on with all actions, step by step. Moments with the same hero and the same squares after
    equally many steps are one, because the rules know nothing else. The hero stays with every action but east and west.
    """
    moments, ends = {"start": new_game()}, {}
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
    return ends


def test_the_best_return_is_29_by_brute_force():
    assert max(all_ends().values()) == 29
    assert all_ends()[9, True] == 29
    assert max(gold for gold, stairs in all_ends() if stairs) == 9


def rollout(actions) -> dict[str, np.ndarray]:
    """All that a group of games writes while the actions, [T, E], are played.  Arrays of [T, E, ...]"""
    world, (length, games) = make_world({"world": "treasure"}), np.shape(actions)
    specs = world.specs | step_specs()
    arrays = {name: np.zeros((length, games, *spec.shape), spec.dtype) for name, spec in specs.items()}
    vector = world.vector(games, tuple(world.specs), seed=5, stream=SeedStream.TRAIN)
    vector.reset()
    for number, chosen in enumerate(actions):
        rows = {name: array[number] for name, array in arrays.items()}
        vector.observe(rows)
        vector.step(chosen, rows)
    return arrays


def test_the_readings_of_each_step_make_up_the_reward():
    """One game only goes east, the other west; the first lasts 40 steps, and the second begins anew after every 4."""
    arrays = rollout([[EAST, WEST]] * STEPS)
    np.testing.assert_array_equal(arrays["reward"], arrays["event_gold"] + 20 * arrays["event_stairs"])
    assert arrays["event_gold"].tolist() == [[1, 0], [0, 0]] * 20
    assert arrays["event_stairs"].tolist() == ([[0, 0]] * 3 + [[0, 1]]) * 10
    assert np.argwhere(arrays["terminated"][:, 0]).tolist() == [[39]]
    np.testing.assert_array_equal(arrays["terminated"][:, 1], arrays["event_stairs"][:, 1])
    assert not arrays["truncated"].any()
    assert bytes(arrays["event_message"][3, 1]).rstrip(b"\0") == DOWN
    assert arrays["numbers"][3:5, 1].tolist() == [[1, 37, 0], [4, 40, 0]]  # the observation is of the next episode
