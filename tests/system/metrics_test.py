"""What a run says about itself."""

import struct

import pytest
from tensorboardX.proto.event_pb2 import Event, SessionLog

from motif_jax.system.metrics import Progress, Writers


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


@pytest.mark.quick
def test_curves_for_tensorboard(tmp_path):
    writers = Writers(tmp_path, tensorboard=True, wandb="", config={}, start=7)
    writers.write(8, {"return": 0.5, "nan": float("nan"), "word": "none"})
    writers.close()
    (file,) = (tmp_path / "tensorboard").iterdir()
    data, events = file.read_bytes(), []
    while data:  # length, its checksum, an event, its checksum
        (size,) = struct.unpack("<Q", data[:8])
        events.append(Event.FromString(data[12 : 12 + size]))
        data = data[12 + size + 4 :]
    version, begun, point = events
    assert version.file_version == "brain.Event:2"
    assert (begun.step, begun.session_log.status) == (8, SessionLog.START)  # takes away what a killed run left
    assert point.step == 8
    assert [(value.tag, value.simple_value) for value in point.summary.value] == [("return", 0.5)]
