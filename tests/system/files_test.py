"""Files that are there whole or not at all, and files of others."""

import fcntl

import pytest

from motif_jax.files import write_whole
from motif_jax.system.foreign import leads_out, read_bytes

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


def test_a_file_of_more_bytes_than_the_limit_is_refused(tmp_path):
    (tmp_path / "file").write_bytes(b"12345")
    assert read_bytes(tmp_path / "file", 5) == b"12345"
    with pytest.raises(ValueError, match="more than 4 bytes"):
        read_bytes(tmp_path / "file", 4)


def test_where_links_lead(tmp_path):
    for name in ("inside", "outside"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    (tmp_path / "inside/to file").symlink_to("file")
    (tmp_path / "inside/out").symlink_to("../outside/file")
    (tmp_path / "inside/folder").symlink_to("../outside")
    (tmp_path / "inside/back").symlink_to("../outside/../inside/file")
    (tmp_path / "alias").symlink_to("inside")
    for base in ("inside", "alias"):
        found = {name: leads_out(tmp_path / base / name, tmp_path / base) for name in (
            "file", "to file", "back", "missing", "out", "folder/file", "../outside/file",
        )}  # fmt: skip
        assert [name for name, out in found.items() if out] == ["out", "folder/file", "../outside/file"]
