"""Crops, scaling and rows against the slow obvious way."""

import numpy as np
import pytest

from motif_jax.envs.observations import (
    BLANK,
    CROP,
    EVENTS,
    OBSERVATIONS,
    POLICY_OBSERVATIONS,
    Frames,
    Observer,
    frame_keys,
    observation_specs,
    scale_blstats,
)
from motif_jax.structs import UserError

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
    keys = ("chars", "colors")
    frames = Frames(2, frame_keys(keys, screen))
    observer = Observer(keys, frames, screen)
    rng = np.random.default_rng(0)
    sources = {key: f"tty_{key}" if screen == "terminal" else key for key in keys}
    for source in sources.values():
        array = frames.arrays[source]
        array[:] = rng.integers(0, 16 if "colors" in source else 128, array.shape)
    rows = {key: np.zeros((2, CROP, CROP), np.uint8) for key in keys}
    for y in range(21):
        for x in range(79):
            frames.arrays["blstats"][:, :2] = (x, y), (78 - x, 20 - y)
            observer.observe(rows, [1, 1])
            for game, (hero_x, hero_y) in enumerate([(x, y), (78 - x, 20 - y)]):
                for key, source in sources.items():
                    slow = slow_crop(
                        frames.arrays[source][game], hero_x, hero_y, 0 if screen == "terminal" else 1, BLANK[source]
                    )
                    assert np.array_equal(rows[key][game], slow), (key, hero_x, hero_y)


def test_hero_stands_at_row_7_column_6():
    frames = Frames(1, frame_keys(("chars",), "terminal"))
    frames.arrays["blstats"][0, :2] = 30, 10
    frames.arrays["tty_chars"][0, 11, 30] = ord("@")  # terminal row = map row + 1
    rows = {"chars": np.zeros((1, CROP, CROP), np.uint8)}
    Observer(("chars",), frames).observe(rows, [1])
    assert np.argwhere(rows["chars"][0] == ord("@")).tolist() == [[7, 6]]


def test_blstats_scaling_by_hand():
    blstats = np.zeros(27, np.int64)
    blstats[[0, 1, 2, 3, 9, 10, 12, 13, 18, 19, 20, 21, 23, 25]] = (
        79,
        21,
        50,
        18,
        9999,
        14,
        3,
        7000,
        2,
        40,
        500,
        2,
        1,
        512,
    )
    expected = np.zeros(27)
    # 79/79, 21/21, hidden, 18/10, hidden, 14/10, hidden, 7000/1000 clipped to 5, 2/10, 40/100, 500/1000, 2, hidden
    expected[[0, 1, 3, 10, 13, 18, 19, 20, 21]] = 1, 1, 1.8, 1.4, 5, 0.2, 0.4, 0.5, 2
    assert scale_blstats(blstats) == pytest.approx(expected, abs=1e-6)
    assert scale_blstats(blstats).dtype == np.float32


def test_events_show_the_last_frame_where_an_episode_ended():
    keys = ("message", "event_message", "event_blstats", "event_message_count")
    frames = Frames(2, frame_keys(keys, "terminal"))
    observer = Observer(keys, frames)
    frames.arrays["message"][:] = 65
    frames.arrays["blstats"][:] = 7
    last = {"message": np.full(256, 66, np.uint8), "blstats": np.full(27, 8, np.int64)}
    rows = {key: np.zeros((2, *spec.shape), spec.dtype) for key, spec in observer.specs.items()}
    observer.record_events(rows, [3, 4], {1: last})
    observer.observe(rows, [3, 1])
    assert rows["event_message"][:, 0].tolist() == [65, 66]
    assert rows["event_blstats"][:, 0].tolist() == [7, 8]
    assert rows["event_message_count"].tolist() == [3, 4]
    assert rows["message"][:, 0].tolist() == [65, 65]


def test_a_step_ships_less_than_a_kilobyte():
    assert sum(spec.nbytes for spec in observation_specs(POLICY_OBSERVATIONS).values()) < 1000


def test_only_what_is_needed_is_asked_of_the_engine():
    assert frame_keys(("event_message",), "terminal") == ("glyphs", "blstats", "message")
    assert "tty_chars" in frame_keys(("chars",), "terminal")
    assert frame_keys(("chars", "colors"), "map") == ("glyphs", "chars", "colors", "blstats", "message")


def test_unknown_observation_names_the_nearest():
    with pytest.raises(UserError, match=r"unknown observation 'mesage'.*did you mean 'message'"):
        observation_specs(("mesage",))
    assert set(EVENTS).isdisjoint(OBSERVATIONS)
