from types import SimpleNamespace

import numpy as np
import pytest

from motif_jax.actors import recorder
from motif_jax.envs.world import SCREEN_SHAPE, Screen

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(("steps", "kept"), [(9, True), (10, False), (30, False)])
def test_too_many_bytes_of_pictures_drop_all_pictures(monkeypatch, steps, kept):
    monkeypatch.setattr(recorder, "MOST_PICTURES", 1000)
    blank = np.zeros(SCREEN_SHAPE, np.uint8)
    game = SimpleNamespace(
        screen=lambda: Screen(blank, blank, np.zeros(2, np.uint8)), picture=lambda: bytes(100), message=b"",
        message_count=1, step=lambda action: 0.0,
    )  # fmt: skip
    frames = recorder.RecordedFrames(game)
    for _ in range(steps):
        frames.step(0)
    arrays = recorder.unpacked(frames.packed())
    assert frames.too_many_pictures == (not kept)
    assert len(arrays["chars"]) == len(arrays["message"]) == steps + 1
    assert ("pictures" in arrays) == ("picture_ends" in arrays) == kept
