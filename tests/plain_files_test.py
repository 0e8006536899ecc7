"""Files of a workdir: whole, torn, and read back."""

import json
import math
from typing import NamedTuple

import numpy as np
import pytest

from motif_jax.files import LineFile, read_json, read_lines, to_plain, write_json

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
