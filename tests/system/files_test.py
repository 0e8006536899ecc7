"""Files that are there whole or not at all."""

import fcntl
import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from motif_jax.files import write_whole
from motif_jax.structs import UserError
from motif_jax.system.files import json_line, read_json, read_lines, write_json, write_lines

pytestmark = pytest.mark.quick


VALUE = {"a": float("nan"), "b": [np.float32("inf"), 1.5, {"c": np.nan}], "d": np.int64(3), "e": (1, "x")}
READ = {"a": None, "b": [None, 1.5, {"c": None}], "d": 3, "e": [1, "x"]}


def test_json_is_json_also_where_there_is_no_number(tmp_path):
    write_json(tmp_path / "x.json", VALUE)
    found = json.loads((tmp_path / "x.json").read_text(), parse_constant=pytest.fail)
    assert found.keys() - READ.keys() == {"checksum"}
    assert list(found)[-1] == "checksum"
    assert read_json(tmp_path / "x.json") == READ
    write_lines(tmp_path / "x.jsonl", [VALUE, {"a": 1}])
    lines = (tmp_path / "x.jsonl").read_text().splitlines()
    assert [json.loads(line, parse_constant=pytest.fail)["a"] for line in lines] == [None, 1]
    assert list(read_lines(tmp_path / "x.jsonl")) == [READ, {"a": 1}]


def read_or_refuse(read) -> str:
    """What is read; "refused: ..." where it is refused."""
    try:
        return repr(read())
    except ValueError as error:
        return f"refused: {error}"


def test_torn_ends_are_dropped_where_lines_are_appended(tmp_path):
    file = tmp_path / "x.jsonl"
    file.write_text(json_line({"a": 1}) + json_line({"a": 2}) + '{"a": 3, "b"')
    assert list(read_lines(file, appended=True)) == [{"a": 1}, {"a": 2}]
    with pytest.raises(ValueError, match="line 3: its end is missing"):
        list(read_lines(file))
    file.write_text(json_line({"a": 1}) + json_line({"a": 2}).replace("2", "4", 1) + json_line({"a": 3}))
    for appended in (False, True):
        with pytest.raises(ValueError, match="line 2: its checksum differs"):
            list(read_lines(file, appended))
    file.write_text("[" * 100_000)
    with pytest.raises(ValueError, match="nested too deeply"):
        read_json(file)


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


def test_a_directory_where_a_file_is_due_is_one_sentence(tmp_path):
    (tmp_path / "x").mkdir()
    with pytest.raises(UserError, match="expected a file, found a directory: '.*x'"):
        write_whole(tmp_path / "x", lambda out: out.write(b"new"))
    assert list(tmp_path.iterdir()) == [tmp_path / "x"]
