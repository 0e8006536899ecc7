import fcntl
import json
import os
import socket
from math import inf, nan
from typing import NamedTuple

import numpy as np
import pytest
from conftest import bytes_of

from motif_jax import files
from motif_jax.system.foreign import leads_out

pytestmark = pytest.mark.quick


def test_what_fails_leaves_what_was_there(tmp_path):
    file = tmp_path / "x"
    files.write_whole(file, lambda out: out.write(b"old"))

    def fail(out):
        out.write(b"new")
        raise ValueError

    with pytest.raises(ValueError):
        files.write_whole(file, fail)
    assert file.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [file]


def test_what_killed_writers_left_is_taken_away_and_what_others_write_is_not(tmp_path):
    killed, other, living = (tmp_path / name for name in (".x.aa.tmp", ".xy.bb.tmp", ".x.cc.tmp"))
    for file in (killed, other, living):
        file.write_bytes(b"half")
    with open(living, "ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        files.write_whole(tmp_path / "x", lambda out: out.write(b"new"))
    assert sorted(tmp_path.iterdir()) == [living, other, tmp_path / "x"]
    files.write_whole(tmp_path / "x", lambda out: out.write(b"newer"))
    assert sorted(tmp_path.iterdir()) == [other, tmp_path / "x"]


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


class Row(NamedTuple):
    step: int
    loss: float


@pytest.mark.parametrize("torn", ["", "{", '{"n": 4', '{"n": 4}', "x" * 70_000])
def test_a_torn_last_line_is_cut_and_the_rows_before_it_stay(tmp_path, torn):
    file = tmp_path / "rows.jsonl"
    file.write_text('{"n": 1}\n{"n": 2}\n' + torn)
    assert [*files.read_lines(file)] == [{"n": 1}, {"n": 2}]
    lines = files.LineFile(file)
    lines.add([{"n": 5}, {"n": np.int64(6)}])
    assert [row["n"] for row in files.read_lines(file)] == [1, 2, 5, 6]  # before it is closed
    lines.close()
    assert file.read_text().count("\n") == 4


def test_json_has_plain_values_only(tmp_path):
    value = {"a": np.float32(0.5), "rows": (Row(1, inf), Row(2, -inf)), "nan": nan, "at": tmp_path, 3: None}
    read = [{"step": 1, "loss": "inf"}, {"step": 2, "loss": "-inf"}]
    plain = {"a": 0.5, "rows": read, "nan": None, "at": str(tmp_path), "3": None}
    assert files.to_plain(value) == plain
    files.write_json(tmp_path / "x.json", plain)
    assert files.read_json(tmp_path / "x.json") == plain == json.loads((tmp_path / "x.json").read_text())


@pytest.mark.parametrize("inside", [False, True])
def test_a_folder_is_made_anew_and_links_in_it_are_not_followed(tmp_path, inside):
    outside, folder = tmp_path / "outside", tmp_path / "deep/folder"
    outside.mkdir()
    (outside / "mine.txt").write_text("mine")
    folder.parent.mkdir()
    if inside:
        (folder / "data").mkdir(parents=True)
        (folder / "data/more").symlink_to(outside)
    else:
        folder.symlink_to(outside)
    files.make_anew(folder)
    assert folder.is_dir()
    assert not folder.is_symlink()
    assert not any(folder.iterdir())
    files.remove_folder(folder)
    files.remove_folder(folder)
    assert not folder.exists()
    assert bytes_of(outside) == {"mine.txt": b"mine"}


@pytest.mark.parametrize("before", [b"", b"process 99999999 on a-host-with-a-long-name", b"process 1 on a\0\0"])
def test_a_lock_says_who_holds_it_and_is_free_when_that_ends(tmp_path, before):
    lock = tmp_path / ".lock"
    lock.write_bytes(before)
    me = f"process {os.getpid()} on {socket.gethostname()}"
    for _ in range(2):
        with files.take(lock):
            assert lock.read_text() == me
            for shared in (False, True):
                with pytest.raises(files.Held, match=me):
                    files.take(lock, shared=shared)
    with files.take(lock, shared=True), files.take(lock, shared=True), pytest.raises(files.Held):
        files.take(lock)
