"""Files that are there whole or not at all."""

import json

import numpy as np
import pytest

from motif_jax.files import write_json, write_lines, write_whole

pytestmark = pytest.mark.quick


def test_json_is_json_also_where_there_is_no_number(tmp_path):
    value = {"a": float("nan"), "b": [np.float32("inf"), 1.5, {"c": np.nan}], "d": np.int64(3), "e": (1, "x")}
    write_json(tmp_path / "x.json", value)
    text = (tmp_path / "x.json").read_text()
    assert json.loads(text, parse_constant=pytest.fail) == {
        "a": None,
        "b": [None, 1.5, {"c": None}],
        "d": 3,
        "e": [1, "x"],
    }
    write_lines(tmp_path / "x.jsonl", [value, {"a": 1}])
    lines = (tmp_path / "x.jsonl").read_text().splitlines()
    assert [json.loads(line, parse_constant=pytest.fail)["a"] for line in lines] == [None, 1]


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
