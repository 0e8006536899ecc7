"""What a run says about itself."""

import struct

import pytest

from motif_jax.metrics import Progress, Writers


@pytest.mark.quick
@pytest.mark.parametrize(("done", "left"), [(50, "50 s left"), (100, "0 s left"), (164, "0 s left")])
def test_no_time_is_left_at_the_end(capsys, monkeypatch, done, left):
    """Steps come many at a time, so that more may be done than were wanted."""
    now = [1000.0]
    monkeypatch.setattr("motif_jax.metrics.time.monotonic", lambda: now[0])
    progress = Progress("train", 100, "steps")
    now[0] += done  # one per second
    progress.update(done)
    assert f", 1/s, {left}\n" in capsys.readouterr().err


@pytest.mark.quick
def test_curves_for_tensorboard(tmp_path):
    for start in (0, 7):
        writers = Writers(tmp_path, tensorboard=True, wandb="", config={}, start=start)
        writers.write(start + 1, {"return": 0.5, "nan": float("nan"), "word": "none"})
        writers.close()
    (file,) = {*(tmp_path / "tensorboard").iterdir()}  # of one second, or one of two
    data, sizes = file.read_bytes(), []
    while data:  # length, its checksum, an event, its checksum
        (size,) = struct.unpack("<Q", data[:8])
        sizes.append(size)
        data = data[8 + 4 + size + 4 :]
    assert len(sizes) >= 2
    assert b"return" in file.read_bytes()
    assert b"nan" not in file.read_bytes()
