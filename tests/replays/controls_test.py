"""Keys: each does what the help says."""

import pytest
from real_replay import made

from motif_jax.replays.controls import arrive, press
from motif_jax.replays.scene import HELP, MESSAGES, View
from motif_jax.replays.story import describe

ROWS = 7  # of the list: three messages
STORY = describe(made([f"message {number}" for number in range(11)], [0] * 10, [0, 0, 5, 0, 0, 3, 0, 0, 0, 0]))


def after(view: View, *keys: str) -> View:
    for key in keys:
        found = press(view, key, STORY, ROWS)
        assert found is not None
        view = found
    return view


@pytest.mark.quick
def test_steps_forward_and_back_stop_at_the_ends():
    assert after(View(4), "right").frame == after(View(4), "l").frame == 5
    assert after(View(4), "left").frame == after(View(4), "h").frame == 3
    assert after(View(0), "left", "left").frame == 0
    assert after(View(9), "right", "right").frame == 10
    assert after(View(4), "end").frame == after(View(4), "G").frame == 10
    assert after(View(4), "home").frame == after(View(4), "g").frame == 0
    assert not after(View(4, playing=True), "right").playing


@pytest.mark.quick
def test_from_one_paid_step_to_the_next():
    assert after(View(0), "n").frame == 3  # the third step leads to frame 3
    assert after(View(0), "n", "n").frame == 6
    assert after(View(0), "n", "n", "n").frame == 6
    assert after(View(10), "p").frame == 6
    assert after(View(6), "p", "p", "p").frame == 3


@pytest.mark.quick
def test_lists_open_scroll_and_close():
    view = after(View(4, playing=True), "t")
    assert (view.over, view.playing) == (MESSAGES, False)
    for keys, first in {"down": 1, "down up up": 0, "page_down": 3, "end": 7, "end home": 0}.items():
        assert after(view, *(key.replace("_", " ") for key in keys.split())).scroll == first
    assert after(view, "down").frame == 4
    assert after(view, "t").over == after(view, "escape").over == ""
    assert after(view, "?").over == HELP
    assert after(view, "?", "?").over == ""


@pytest.mark.quick
def test_playing_ends_with_the_messages():
    assert arrive(View(4, True), 9, STORY) == View(9, True)
    assert arrive(View(4, True), 25, STORY) == View(10, False, over=MESSAGES)
