"""What a run says about itself."""

import pytest

from motif_jax.system.metrics import Progress


@pytest.mark.quick
@pytest.mark.parametrize(("done", "left"), [(50, "50 s left"), (100, "0 s left"), (164, "0 s left")])
def test_no_time_is_left_at_the_end(capsys, monkeypatch, done, left):
    """Steps come many at a time, so that more may be done than were wanted."""
    now = [1000.0]
    monkeypatch.setattr("motif_jax.system.metrics.time.monotonic", lambda: now[0])
    progress = Progress("train", 100, "steps")
    now[0] += done  # one per second
    progress.update(done)
    assert f", 1/s, {left}\n" in capsys.readouterr().err
