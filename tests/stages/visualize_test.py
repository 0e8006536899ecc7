import fcntl
import subprocess
import sys

import pytest
from conftest import ROOT, get_config, run_stage
from real_replay import play

from motif_jax.replays.replay import save_replay
from motif_jax.stages import visualize


def settings(**values):
    return get_config(**{f"visualize.{name}": value for name, value in values.items()})


@pytest.fixture
def replay(tmp_path):
    save_replay(tmp_path / "replay.npz", play())
    return tmp_path / "replay.npz"


@pytest.mark.journey
def test_an_export_is_written_and_said(replay, tmp_path, capsys):
    file = tmp_path / "new/film.GIF"
    run_stage(visualize, settings(replay=str(replay), export=str(file), speed=50.0), tmp_path / "run")
    assert file.is_file()
    assert f"written to {str(file)!r}" in capsys.readouterr().out
    assert [other.name for other in file.parent.iterdir()] == [file.name]


@pytest.mark.journey
def test_a_replay_is_shown_without_jax(replay, tmp_path):
    code = (
        "import sys; from motif_jax import launch; launch.define_flags(); status = launch.main(sys.argv); "
        "print([name for name in ('jax', 'flax', 'orbax') if name in sys.modules]); sys.exit(status)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "--config=configs/motif.py", f"--workdir={tmp_path}", "--stage=visualize",
         f"--config.visualize.replay={replay}"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


def test_one_can_watch_while_another_stage_works(replay, tmp_path, launch):
    with open(tmp_path / ".lock", "a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        arguments = ("--config=configs/motif.py", f"--workdir={tmp_path}", f"--config.visualize.replay={replay}")
        done = launch(*arguments, "--stage=visualize")
        assert (done.returncode, done.stderr) == (0, "")
        assert "killed by a jackal" in done.stdout
        assert "is using" in launch(*arguments, "--stage=visualize,collect").stderr
