"""Rows of many groups at a time, beside a loop over groups."""

import numpy as np
import pytest

from motif_jax.actors.rows import Rows

pytestmark = pytest.mark.quick
SLOTS, STEPS, SIZE = 7, 4, 3
SHAPES = {"picture": (STEPS + 1, SIZE, 2, 5), "number": (STEPS, SIZE), "start": (1, SIZE, 6)}
SHAPES["nothing"] = STEPS, SIZE, 0


def make_rollouts() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {key: rng.integers(1, 100, (SLOTS, *shape)) for key, shape in SHAPES.items()}


def places(key: str, count: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(count)
    return rng.permutation(SLOTS)[:count], rng.integers(SHAPES[key][0], size=count)


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("key", SHAPES)
def test_rows_are_read_as_one_by_one(key, count):
    rollouts = make_rollouts()
    slots, steps = places(key, count)
    expected = np.concatenate([rollouts[key][slot, step] for slot, step in zip(slots, steps, strict=True)])
    rows = Rows(rollouts)
    assert np.array_equal(rows.read(key, slots, steps), expected)
    roomy = rows.read(key, slots, steps, room=len(expected) + 5)
    assert np.array_equal(roomy[: len(expected)], expected)
    assert roomy.shape[0] == len(expected) + 5
    assert not roomy[len(expected) :].any()


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("key", SHAPES)
def test_rows_are_written_as_one_by_one(key, count):
    rollouts, expected = make_rollouts(), make_rollouts()
    slots, steps = places(key, count)
    values = np.random.default_rng(1).integers(100, 200, (count * SIZE, *SHAPES[key][2:]))
    Rows(rollouts).write(key, slots, steps, values)
    for number, (slot, step) in enumerate(zip(slots, steps, strict=True)):
        expected[key][slot, step] = values[number * SIZE : (number + 1) * SIZE]
    assert all(np.array_equal(rollouts[name], expected[name]) for name in SHAPES)
