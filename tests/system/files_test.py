"""Files that are there whole or not at all."""

import fcntl
from concurrent.futures import ThreadPoolExecutor

import pytest

from motif_jax.files import write_whole

pytestmark = pytest.mark.quick


def test_what_fails_leaves_what_was_there(tmp_path):
    file = tmp_path / "x"
    write_whole(file, lambda out: out.write(b"old"))

    def fail(out):
        out.write(b"new")
        raise ValueError

    with pytest.raises(ValueError):
        write_whole(file, fail)
    assert file.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [file]


def test_what_killed_writers_left_is_taken_away_and_what_others_write_is_not(tmp_path):
    killed, other, living = (tmp_path / name for name in (".x.aa.tmp", ".xy.bb.tmp", ".x.cc.tmp"))
    for file in (killed, other, living):
        file.write_bytes(b"half")
    with open(living, "ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        write_whole(tmp_path / "x", lambda out: out.write(b"new"))
    assert sorted(tmp_path.iterdir()) == [living, other, tmp_path / "x"]
    write_whole(tmp_path / "x", lambda out: out.write(b"newer"))
    assert sorted(tmp_path.iterdir()) == [other, tmp_path / "x"]


def test_many_write_the_same_file_at_a_time(tmp_path):
    def write(number):
        for _ in range(40):
            write_whole(tmp_path / "x", lambda out: out.write(b"%d" % number * 1000))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert len(set((tmp_path / "x").read_bytes())) == 1
    assert list(tmp_path.iterdir()) == [tmp_path / "x"]
