"""Scripted players and their paths."""

import random

import numpy as np
import pytest

from motif_jax.actors.players import make_scripted
from motif_jax.envs.nethack.explorer import DIAGONAL, STEPS, path_to, shift
from motif_jax.envs.nethack.figures import FIGURES
from motif_jax.envs.nethack.game_settings import GameSettings
from motif_jax.envs.nethack.observations import open_rows
from motif_jax.envs.nethack.vector import GameVector
from motif_jax.envs.world import step_specs
from motif_jax.envs.worlds import make_world


def play(player_name: str, episodes: int, max_steps: int) -> list:
    """The first episodes of that player, alone."""
    numbers = iter(range(episodes + 1))
    player = make_scripted(player_name, make_world({}), 1)

    def begin(game: int) -> int:
        episode = next(numbers)
        player.begin(game, vector.seed_of(episode))
        return episode

    settings = GameSettings(max_episode_steps=max_steps)
    vector = GameVector(1, settings, (), seed=1, next_episode=begin, extra_frames=player.frames)
    vector.reset()
    rows = open_rows({key: np.zeros((1, *spec.shape), spec.dtype) for key, spec in step_specs().items()})
    found = []
    while len(found) < episodes:
        vector.step(player.act(vector), rows)
        found += [info for _, info in vector.finished]
    return found


def test_the_explorer_gets_down():
    explorer, at_random = play("explorer", 20, 2500), play("random", 8, 2500)
    explorer, at_random = ([info.named(FIGURES) for info in infos] for infos in (explorer, at_random))
    assert np.mean([figures["max_depth"] >= 3 for figures in explorer]) >= 0.4
    assert np.mean([figures["score"] for figures in explorer]) > 3 * np.mean([f["score"] for f in at_random])


@pytest.mark.quick
def test_an_episode_is_the_same_wherever_it_is_played():
    mixed = play("explorer:0.5,random:0.5", 3, 400)
    assert mixed == play("explorer:0.5,random:0.5", 3, 400)
    assert mixed[:2] == play("explorer:0.5,random:0.5", 2, 400)


def slow_distance(start: tuple, goals: set, walkable: set, doors: set) -> int | None:
    """Breadth-first search, square by square."""
    seen, edge, distance = {start}, {start}, 0
    while edge:
        if edge & goals:
            return distance
        reached = set()
        for x, y in edge:
            for dx in (-1, 0, 1):
                for dy in (-1, 0, 1):
                    to = x + dx, y + dy
                    if dx and dy and ((x, y) in doors or to in doors):
                        continue
                    if to in walkable and to not in seen:
                        reached.add(to)
        seen |= reached
        edge, distance = reached, distance + 1
    return None


@pytest.mark.quick
@pytest.mark.parametrize("seed", range(8))
def test_paths_are_shortest_and_can_be_walked(seed):
    rng = random.Random(seed)
    share = rng.uniform(0.35, 0.9)
    walkable = {(x, y) for x in range(79) for y in range(21) if rng.random() < share}
    doors = {square for square in walkable if rng.random() < 0.2}
    start = rng.choice(sorted(walkable))
    goals = set(rng.sample(sorted(walkable), 5))

    def bits(set_of: set) -> int:
        return sum(1 << 80 * y + x for x, y in set_of)

    path = path_to(bits({start}), bits(goals), bits(walkable), bits(doors))
    distance = slow_distance(start, goals, walkable, doors)
    assert len(path) == (distance or 0)
    at = bits({start})
    for action in path:
        to = shift(at, STEPS[action])
        assert to & bits(walkable)
        assert not (action in DIAGONAL and (at | to) & bits(doors))
        at = to
    assert distance is None or at & bits(goals)
