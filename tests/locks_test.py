"""The lock of a workdir, also where the file system has none."""

import os
import shutil
import socket
import subprocess

import pytest

from motif_jax.files import Held, take


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


# ---- file systems without locks

REFUSES = "#include <errno.h>\nint flock(int file, int operation) { errno = NUMBER; return -1; }\n"
SMALL = ("--config=configs/quickstart.py", "--stage=collect,annotate", "--config.collect.num_pairs=10",
         "--config.collect.num_workers=1", "--config.collect.collector=random")  # fmt: skip


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler, to refuse locks as such a file system does")
@pytest.mark.parametrize(("number", "flag"), [("ENOSYS", "--nolocks"), ("ENOLCK", "")])
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
