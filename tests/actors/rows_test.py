from types import SimpleNamespace

import numpy as np
import pytest

from motif_jax.actors import recorder
from motif_jax.actors.worker import MANY, find_places, read_rows, write_rows
from motif_jax.envs.world import SCREEN_SHAPE, Screen

pytestmark = pytest.mark.quick
SLOTS, STEPS, SIZE = MANY + 3, 4, 3
COUNTS = 1, 2, MANY - 1, MANY, MANY + 2
SHAPES = {"picture": (STEPS + 1, SIZE, 2, 5), "number": (STEPS, SIZE), "start": (1, SIZE, 6)}
SHAPES["nothing"] = STEPS, SIZE, 0


def make_rollouts() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {key: rng.integers(1, 100, (SLOTS, *shape)) for key, shape in SHAPES.items()}


def some_pairs(key: str, count: int) -> list[tuple[int, int]]:
    rng = np.random.default_rng(count)
    slots, steps = rng.permutation(SLOTS)[:count], rng.integers(SHAPES[key][0], size=count)
    return list(zip(slots.tolist(), steps.tolist(), strict=True))


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("key", SHAPES)
def test_rows_are_read_and_written_as_one_by_one(key, count):
    rollouts, written = make_rollouts(), make_rollouts()
    pairs = some_pairs(key, count)
    expected = np.concatenate([rollouts[key][slot, step] for slot, step in pairs])
    assert np.array_equal(read_rows(rollouts[key], find_places(pairs)), expected)
    roomy = read_rows(rollouts[key], find_places(pairs), room=len(expected) + 5)
    assert roomy.shape[0] == len(expected) + 5
    assert np.array_equal(roomy[: len(expected)], expected)
    assert not roomy[len(expected) :].any()
    values = np.random.default_rng(1).integers(100, 200, (count * SIZE, *SHAPES[key][2:]))
    write_rows(rollouts[key], find_places(pairs), values)
    for number, (slot, step) in enumerate(pairs):
        written[key][slot, step] = values[number * SIZE : (number + 1) * SIZE]
    assert all(np.array_equal(rollouts[name], written[name]) for name in SHAPES)


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
