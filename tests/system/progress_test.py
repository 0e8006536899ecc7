"""Lines of progress, where standard error is not a terminal."""

import pytest

from motif_jax.system import metrics
from motif_jax.system.metrics import Progress

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(("total", "lines"), [
    # 100 s pass before the first update, which compiles; then 1,000 in 20 s: 50/s. (3,000 - 2,000) / 50 = 20 s
    (3000, ["train: 1,000 of 3,000 steps", "train: 2,000 of 3,000 steps, 50/s, 20 s left, return 1.00"]),
    (None, ["train: 1,000 steps", "train: 2,000 steps, 50/s, return 1.00"]),
])  # fmt: skip
def test_the_time_before_the_first_update_does_not_count(capsys, monkeypatch, total, lines):
    now = [1000.0]
    monkeypatch.setattr(metrics.time, "monotonic", lambda: now[0])
    progress = Progress("train", total, "steps")
    now[0] += 100
    progress.update(1000)
    now[0] += 20
    progress.update(2000, **{"return": "1.00"})
    progress.close()
    assert capsys.readouterr().err.splitlines() == lines


@pytest.mark.parametrize(("most", "left"), [(240.0, "240"), (1000.0, "400"), (-5.0, "0")])
def test_the_time_left_is_at_most_what_the_limit_leaves(capsys, monkeypatch, most, left):
    """50/s, so 20,000 steps would take 400 s; the rate counts a compilation after the first update, the limit not."""
    now = [1000.0]
    monkeypatch.setattr(metrics.time, "monotonic", lambda: now[0])
    progress = Progress("train", None, "steps")
    progress.update(1000)
    now[0] += 20
    progress.expect(22_000, most)
    progress.update(2000)
    progress.close()
    assert capsys.readouterr().err.splitlines()[-1] == f"train: 2,000 of 22,000 steps, 50/s, {left} s left"
