import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from motif_jax.actors.pool import WorkerFolder, remove_stale_folders
from motif_jax.files import take

pytestmark = pytest.mark.quick


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


@pytest.fixture(scope="module")
def killed(tmp_path_factory) -> Path:
    code = """
import os, signal
from motif_jax.actors.pool import WorkerFolder
made = WorkerFolder()
(made.path / "game").mkdir()
(made.path / "game/nle.ttyrec").touch()
os.kill(os.getpid(), signal.SIGKILL)
"""
    home = tmp_path_factory.mktemp("killed")
    done = subprocess.run([sys.executable, "-c", code], env=os.environ | {"TMPDIR": str(home)}, check=False)
    assert done.returncode == -signal.SIGKILL
    (folder,) = home.iterdir()
    return folder


@pytest.fixture
def stale(killed, temporary) -> Path:
    return shutil.copytree(killed, temporary / killed.name)


def test_the_folder_of_a_killed_parent_is_removed_and_that_of_a_living_one_is_not(temporary, stale):
    living = WorkerFolder()
    assert (stale / "game/nle.ttyrec").exists()
    remove_stale_folders()
    assert list(temporary.iterdir()) == [living.path]
    living.remove()
    assert not list(temporary.iterdir())


# Folders with the name or the content of a worker's folder, which must stay


def workdir(folder: Path, stale: Path) -> None:
    folder.mkdir()
    with take(folder / ".lock"):
        pass


def link_to_such_a_folder(folder: Path, stale: Path) -> None:
    target = folder.parent.parent / "target"
    shutil.copytree(stale, target)
    folder.symlink_to(target)


def of_somebody_else(folder: Path, stale: Path) -> None:
    if os.geteuid():
        pytest.skip("only root can give a folder to somebody else")
    shutil.copytree(stale, folder)
    os.chown(folder, 12345, 12345)


@pytest.mark.parametrize("make", [workdir, link_to_such_a_folder, of_somebody_else])
def test_what_this_program_did_not_make_stays(temporary, stale, make):
    make(temporary / "motif_jax-7-worker-abcd1234", stale)
    everything = set(temporary.parent.rglob("*"))
    made_by_a_worker = {path for path in everything if stale in (path, *path.parents)}
    remove_stale_folders()
    assert {path for path in everything if not os.path.lexists(path)} == made_by_a_worker
