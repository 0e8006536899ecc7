"""Crops, scaling and rows against the slow obvious way."""

import numpy as np
import pytest
from nle import nethack

from motif_jax.envs.nethack.observations import (
    BLANKS,
    CROP,
    SCREENS,
    Frames,
    Observer,
    frame_keys,
    open_rows,
    scale_blstats,
)

pytestmark = pytest.mark.quick


def slow_crop(screen: np.ndarray, x: int, map_row: int, first_row: int, blank: int) -> np.ndarray:
    """12 x 12 cells around terminal cell (map_row + 1, x): six above the row before it, six left of the hero."""
    crop = np.full((CROP, CROP), blank, screen.dtype)
    for i in range(CROP):
        for j in range(CROP):
            row, column = map_row - 6 + i - first_row, x - 6 + j
            if 0 <= row < screen.shape[0] and 0 <= column < screen.shape[1]:
                crop[i, j] = screen[row, column]
    return crop


@pytest.mark.parametrize("screen", ["terminal", "map"])
def test_crop_at_every_place_of_the_map(screen):
    frames = Frames(2, frame_keys(("crop",), screen))
    observer = Observer(("crop",), frames, screen)
    rng = np.random.default_rng(0)
    for key, limit in zip(SCREENS[screen], (128, 32)):
        frames.arrays[key][:] = rng.integers(0, limit, frames.arrays[key].shape)
    rows = {"crop": np.zeros((2, 2, CROP, CROP), np.uint8)}
    for y in range(21):
        for x in range(79):
            frames.arrays["blstats"][:, :2] = (x, y), (78 - x, 20 - y)
            observer.observe(open_rows(rows), np.array([1, 1], np.int32))
            for game, (hero_x, hero_y) in enumerate([(x, y), (78 - x, 20 - y)]):
                for plane, key in enumerate(SCREENS[screen]):
                    first_row = 0 if screen == "terminal" else 1
                    slow = slow_crop(frames.arrays[key][game], hero_x, hero_y, first_row, BLANKS[plane])
                    assert np.array_equal(rows["crop"][game, plane], slow), (key, hero_x, hero_y)


def test_position_is_dungeon_level_column_and_row():
    frames = Frames(2, frame_keys(("position",), "terminal"))
    for game, (dungeon, level, x, y) in enumerate([(0, 1, 30, 10), (2, 4, 78, 20)]):
        frames.arrays["blstats"][game] = -1  # of the numbers of the bottom line, no other is read
        frames.arrays["blstats"][game, [nethack.NLE_BL_DNUM, nethack.NLE_BL_DLEVEL]] = dungeon, level
        frames.arrays["blstats"][game, [nethack.NLE_BL_X, nethack.NLE_BL_Y]] = x, y
    rows = {"position": np.zeros((2, 4), np.int32)}
    Observer(("position",), frames).observe(open_rows(rows), np.array([1, 1], np.int32))
    assert rows["position"].tolist() == [[0, 1, 30, 10], [2, 4, 78, 20]]


def test_blstats_scaling_by_hand():
    blstats = np.zeros(27, np.int64)
    blstats[[0, 1, 2, 3, 9, 10, 12, 13, 18, 19, 20, 21, 23, 25]] = (
        79, 21, 50, 18, 9999, 14, 3, 7000, 2, 40, 500, 2, 1, 512,
    )  # fmt: skip
    expected = np.zeros(27)
    # 79/79, 21/21, hidden, 18/10, hidden, 14/10, hidden, 7000/1000 clipped to 5, 2/10, 40/100, 500/1000, 2, hidden
    expected[[0, 1, 3, 10, 13, 18, 19, 20, 21]] = 1, 1, 1.8, 1.4, 5, 0.2, 0.4, 0.5, 2
    assert scale_blstats(blstats) == pytest.approx(expected, abs=1e-6)
    assert scale_blstats(blstats).dtype == np.float32
