"""Locks, and files that are opened where they lie: nothing outside is touched, and nothing hangs."""

import os
import re
import shutil
import socket
import subprocess
from pathlib import Path

import numpy as np
import pytest

from motif_jax.files import Held, take
from motif_jax.structs import UserError
from motif_jax.system import locks
from motif_jax.system.files import read_array
from motif_jax.system.locks import open_in_place

CANARY = b"somebody's own file"


def link(path: Path, outside: Path) -> str:
    path.symlink_to(outside)
    return "a symbolic link"


def dangling_link(path: Path, outside: Path) -> str:
    path.symlink_to(outside.with_name("not there"))
    return "a symbolic link"


def link_to_a_device(path: Path, outside: Path) -> str:
    path.symlink_to("/dev/full")
    return "a symbolic link"


def pipe(path: Path, outside: Path) -> str:
    os.mkfifo(path)
    return "a named pipe"


def bound_socket(path: Path, outside: Path) -> str:
    here = os.getcwd()
    os.chdir(path.parent)  # the name of a socket must be short
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path.name)
    os.chdir(here)
    return "a socket"


def directory(path: Path, outside: Path) -> str:
    path.mkdir()
    return "a directory"


@pytest.mark.quick
@pytest.mark.parametrize("make", [link, dangling_link, link_to_a_device, pipe, bound_socket, directory])
@pytest.mark.parametrize("use", [
    lambda path: open_in_place(path, "a"), lambda path: open_in_place(path, "r+b"),
])  # fmt: skip
def test_what_is_no_file_is_refused_by_name(tmp_path, make, use):
    path, outside = tmp_path / "run" / ".lock", tmp_path / "outside"
    path.parent.mkdir()
    outside.write_bytes(CANARY)
    kind = make(path, outside)
    with pytest.raises(UserError, match=f"'{path}' is {kind}, where .*: move it away"):
        use(path)
    assert outside.read_bytes() == CANARY
    assert sorted(tmp_path.iterdir()) == [outside, path.parent]


@pytest.mark.quick
def test_one_module_locks_and_opens_files_to_change_them():
    package = Path(locks.__file__).parents[1]
    # shared_arrays: memory that workers share, without a name
    others = {package / "files.py", package / "system/locks.py", package / "actors/shared_arrays.py"}
    for file in set(package.rglob("*.py")) - others:
        text = file.read_text().replace("'", '"')
        assert not re.search(r"\bfcntl\b", text), file
        assert not re.search(
            r"""(?<![\w.])open\([^()\n]*, "(w|a|r\+|[wa]b|rb\+|r\+b)"[,)]""", text.replace("'", '"')
        ), file


@pytest.mark.quick
@pytest.mark.parametrize("before", [b"", b"process 99999999 on a-host-with-a-long-name", b"process 1 on a\0\0"])
def test_a_lock_says_who_holds_it_and_is_free_when_that_ends(tmp_path, before):
    (tmp_path / ".lock").write_bytes(before)
    me = f"process {os.getpid()} on {socket.gethostname()}"
    for _ in range(2):
        with take(tmp_path / ".lock"):
            assert (tmp_path / ".lock").read_text() == me
            for shared in (False, True):
                with pytest.raises(Held, match=me):
                    take(tmp_path / ".lock", shared=shared)
    with take(tmp_path / ".lock", shared=True), take(tmp_path / ".lock", shared=True), pytest.raises(Held):
        take(tmp_path / ".lock")


@pytest.mark.quick
def test_a_mapped_array_is_never_written_through_a_link(tmp_path):
    np.save(tmp_path / "theirs.npy", np.zeros(3))
    (tmp_path / "ours.npy").symlink_to(tmp_path / "theirs.npy")
    assert len(read_array(tmp_path / "ours.npy", "r")) == 3
    with pytest.raises(UserError, match="is a symbolic link"):
        read_array(tmp_path / "ours.npy", "r+")


# ---- file systems without locks

REFUSES = "#include <errno.h>\nint flock(int file, int operation) { errno = NUMBER; return -1; }\n"
SMALL = ("--config=configs/quickstart.py", "--stage=collect,annotate", "--config.collect.num_pairs=10",
         "--config.collect.num_workers=1", "--config.collect.collector=random")  # fmt: skip


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler, to refuse locks as such a file system does")
@pytest.mark.parametrize(("number", "flag"), [("ENOSYS", "--nolocks"), ("ENOLCK", ""), ("EOPNOTSUPP", "")])
def test_a_file_system_without_locks_is_one_sentence_and_a_flag_goes_on_without(
    launch, tmp_path, monkeypatch, number, flag
):
    (tmp_path / "flock.c").write_text(REFUSES.replace("NUMBER", number))
    library = tmp_path / "flock.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, tmp_path / "flock.c"], check=True)
    monkeypatch.setenv("LD_PRELOAD", str(library))
    workdir = tmp_path / "run"
    refused = launch(*SMALL, f"--workdir={workdir}")
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1
    assert f"the file system of '{workdir}' has no locks" in refused.stderr
    assert "--nolocks" in refused.stderr
    if flag:
        done = launch(*SMALL, f"--workdir={workdir}", flag)
        assert done.returncode == 0, done.stderr
        assert list(workdir.glob("dataset/preference/*.npy"))
        assert not list(workdir.rglob("*.tmp"))
