"""Paths of the scripted player `explorer`."""

import random

import pytest

from motif_jax.envs.nethack.explorer import DIAGONAL, STEPS, path_to, shift


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
