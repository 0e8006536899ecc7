"""Files of a workdir: whole, torn, and read back."""

import json
import math
import os
from typing import NamedTuple

import numpy as np
import pytest

from motif_jax.files import LineFile, keep_lines, read_json, read_lines, to_plain, write_json, write_lines

pytestmark = pytest.mark.quick


class Row(NamedTuple):
    step: int
    loss: float


@pytest.mark.parametrize("torn", ["", "{", '{"n": 4', '{"n": 4}', "x" * 70_000])
def test_a_torn_last_line_is_cut_and_the_rows_before_it_stay(tmp_path, torn):
    file = tmp_path / "rows.jsonl"
    file.write_text('{"n": 1}\n{"n": 2, "checksum": "sha256:0"}\n' + torn)
    assert [*read_lines(file)] == [{"n": 1}, {"n": 2}]
    lines = LineFile(file)
    lines.add([{"n": 5}, {"n": np.int64(6)}])
    assert [row["n"] for row in read_lines(file)] == [1, 2, 5, 6]  # before it is closed
    lines.close()
    assert file.read_text().count("\n") == 4


def test_rows_after_a_checkpoint_are_removed(tmp_path):
    lines = LineFile(tmp_path / "rows.jsonl")
    lines.add([{"steps": steps} for steps in (0, 10, 20, 30)])
    lines.close()
    keep_lines(tmp_path / "rows.jsonl", "steps", 20)
    keep_lines(tmp_path / "none.jsonl", "steps", 20)
    assert [row["steps"] for row in read_lines(tmp_path / "rows.jsonl")] == [0, 10, 20]
    assert os.listdir(tmp_path) == ["rows.jsonl"]


def test_json_has_plain_values_only(tmp_path):
    value = {
        "a": np.float32(0.5),
        "rows": (Row(1, math.inf), Row(2, -math.inf)),
        "nan": math.nan,
        "at": tmp_path,
        3: None,
    }
    read = [{"step": 1, "loss": "inf"}, {"step": 2, "loss": "-inf"}]
    plain = {"a": 0.5, "rows": read, "nan": None, "at": str(tmp_path), "3": None}
    assert to_plain(value) == plain
    write_json(tmp_path / "x.json", plain)
    assert read_json(tmp_path / "x.json") == plain == json.loads((tmp_path / "x.json").read_text())


def test_lines_have_null_where_a_number_is_not_finite(tmp_path):
    write_lines(tmp_path / "x.jsonl", [{"a": math.nan, "b": [np.float32("inf"), 1.5], "c": np.int64(3)}, {"a": 1}])
    lines = (tmp_path / "x.jsonl").read_text().splitlines()
    assert [json.loads(line, parse_constant=pytest.fail)["a"] for line in lines] == [None, 1]
    assert [*read_lines(tmp_path / "x.jsonl")] == [{"a": None, "b": [None, 1.5], "c": 3}, {"a": 1}]
