"""NetHack's crops, scaling and rows, groups of games, and the explorer's paths, against the slow obvious way."""

import random

import numpy as np
import pytest
from nle import nethack

from motif_jax.envs.nethack import observations
from motif_jax.envs.nethack.explorer import DIAGONAL, STEPS, path_to, shift
from motif_jax.envs.nethack.world import GameSettings, GameVector
from motif_jax.envs.world import step_specs

pytestmark = pytest.mark.quick


def slow_crop(screen: np.ndarray, x: int, map_row: int, first_row: int, blank: int) -> np.ndarray:
    """12 x 12 cells around terminal cell (map_row + 1, x): six above the row before it, six left of the hero."""
    crop = np.full((observations.CROP, observations.CROP), blank, screen.dtype)
    for i in range(observations.CROP):
        for j in range(observations.CROP):
            row, column = map_row - 6 + i - first_row, x - 6 + j
            if 0 <= row < screen.shape[0] and 0 <= column < screen.shape[1]:
                crop[i, j] = screen[row, column]
    return crop


@pytest.mark.parametrize("screen", ["terminal", "map"])
def test_crop_at_every_place_of_the_map(screen):
    observer = observations.Observer(2, ("crop",), screen)
    rng = np.random.default_rng(0)
    for key, limit in zip(observations.SCREENS[screen], (128, 32)):
        observer.arrays[key][:] = rng.integers(0, limit, observer.arrays[key].shape)
    rows = {"crop": np.zeros((2, 2, observations.CROP, observations.CROP), np.uint8)}
    for y in range(21):
        for x in range(79):
            observer.arrays["blstats"][:, :2] = (x, y), (78 - x, 20 - y)
            observer.observe(observations.open_rows(rows), np.array([1, 1], np.int32))
            for game, (hero_x, hero_y) in enumerate([(x, y), (78 - x, 20 - y)]):
                for plane, key in enumerate(observations.SCREENS[screen]):
                    first_row = 0 if screen == "terminal" else 1
                    slow = slow_crop(observer.arrays[key][game], hero_x, hero_y, first_row, observations.BLANKS[plane])
                    assert np.array_equal(rows["crop"][game, plane], slow), (key, hero_x, hero_y)


def test_position_is_dungeon_level_column_and_row():
    observer = observations.Observer(2, ("position",))
    for game, (dungeon, level, x, y) in enumerate([(0, 1, 30, 10), (2, 4, 78, 20)]):
        observer.arrays["blstats"][game] = -1  # of the numbers of the bottom line, no other is read
        observer.arrays["blstats"][game, [nethack.NLE_BL_DNUM, nethack.NLE_BL_DLEVEL]] = dungeon, level
        observer.arrays["blstats"][game, [nethack.NLE_BL_X, nethack.NLE_BL_Y]] = x, y
    rows = {"position": np.zeros((2, 4), np.int32)}
    observer.observe(observations.open_rows(rows), np.array([1, 1], np.int32))
    assert rows["position"].tolist() == [[0, 1, 30, 10], [2, 4, 78, 20]]


def test_blstats_scaling_by_hand():
    blstats, expected = np.zeros(27, np.int64), np.zeros(27)
    blstats[[0, 1, 2, 3, 9, 10, 12, 13, 18, 19, 20, 21, 23, 25]] = (
        79, 21, 50, 18, 9999, 14, 3, 7000, 2, 40, 500, 2, 1, 512,
    )  # fmt: skip
    # 79/79, 21/21, hidden, 18/10, hidden, 14/10, hidden, 7000/1000 clipped to 5, 2/10, 40/100, 500/1000, 2, hidden
    expected[[0, 1, 3, 10, 13, 18, 19, 20, 21]] = 1, 1, 1.8, 1.4, 5, 0.2, 0.4, 0.5, 2
    assert observations.scale_blstats(blstats) == pytest.approx(expected, abs=1e-6)
    assert observations.scale_blstats(blstats).dtype == np.float32


def make(num_games: int, *names: str, **settings) -> tuple[GameVector, dict]:
    names = names or (*observations.POLICY_OBSERVATIONS, "event_blstats")
    vector = GameVector(num_games, GameSettings(**settings), names)
    vector.reset()
    specs = step_specs() | vector.observer.specs
    return vector, {key: np.zeros((num_games, *spec.shape), spec.dtype) for key, spec in specs.items()}


def advance(vector: GameVector, actions: list[int], rows: dict) -> None:
    rows["terminated"][:] = rows["truncated"][:] = False
    vector.step(actions, observations.open_rows(rows))


def test_readings_are_changes_of_the_bottom_line():
    names = ("event_score", "event_health", "event_gold", "event_idle")
    vector, rows = make(2, "blstats", "event_blstats", *names, max_episode_steps=60)
    seen = set()
    for actions in np.random.default_rng(0).integers(23, size=(150, 2)).tolist():
        vector.observe(observations.open_rows(rows))
        before = rows["blstats"].copy()
        advance(vector, actions, rows)
        changes = rows["event_blstats"] - before
        for name, place in zip(names, (9, 10, 13), strict=False):
            assert rows[name].tolist() == changes[:, place].tolist()
        passed = (changes[:, 20] != 0).tolist()
        asks = [game.message.startswith((b"What do you want", b"In what direction")) for game in vector.games]
        assert rows["event_idle"].tolist() == [not (p or a) for p, a in zip(passed, asks, strict=True)]
        seen.update(zip(passed, asks, strict=True))
    assert seen == {(True, False), (False, False), (False, True)}  # an open question takes no time, and is not idle


@pytest.mark.parametrize("reference", [False, True])
def test_a_new_episode_follows_at_once(reference):
    """The published time limit is a true end."""
    vector, rows = make(1, max_episode_steps=3, reference_time_limit=reference)
    first = []
    for _ in range(7):
        advance(vector, [19], rows)
        vector.observe(observations.open_rows(rows))
        first.append(bool(vector.first[0]))
        if vector.finished:
            _, info = vector.finished[0]
            assert info.steps == 3
            assert (rows["truncated"][0], rows["terminated"][0]) == (not reference, reference)
            assert rows["message_count"][0] == 1  # the new episode has shown its first message once
            assert rows["blstats"][0, 20] == 1  # its clock
            assert rows["event_blstats"][0, 20] > 1
    assert first == [False, False, True, False, False, True, False]


def slow_distance(start: tuple, goals: set, walkable: set, doors: set) -> int | None:
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
