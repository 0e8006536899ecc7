"""Numbers as large as a computer has, and names longer than a file system takes: no traceback, and one line."""

import math
import re

import numpy as np
import pytest
from conftest import get_config
from report_workdir import tell, write_workdir

from motif_jax.files import LONGEST, read_json, read_lines, short_name, write_json, write_lines
from motif_jax.pages.over_seeds import estimate
from motif_jax.stages import report
from motif_jax.stages.annotate.setup import label_name
from motif_jax.stages.evaluate.contenders import find_contender
from motif_jax.stages.evaluate.summary import intervals, show

pytestmark = pytest.mark.quick
HUGE = 1.7e308


def test_means_and_intervals_of_huge_numbers_are_finite():
    rows = [HUGE, HUGE, -HUGE, HUGE, 1.0]
    with np.errstate(all="raise", under="ignore"):
        found = intervals({"huge": rows, "one": [1.0] * 5}, seed=0, wanted=5)
        over = estimate([np.array(rows)])
    assert all(math.isfinite(value) for figure in found.values() for value in figure.values())
    assert math.isclose(found["huge"]["mean"], 0.4 * HUGE)
    assert found["one"]["mean"] == 1.0
    assert all(map(math.isfinite, over))
    assert len(show(found["huge"])) < 60


@pytest.mark.parametrize(("file", "place"), [
    ("evaluate/random/summary.json", ("figures", "return", "mean")), ("policy/metrics.jsonl", ("episode/return",)),
])  # fmt: skip
def test_a_number_that_is_too_large_costs_no_page(tmp_path, file, place):
    workdir = write_workdir(tmp_path / "run")
    path = workdir / file
    if file.endswith("jsonl"):
        write_lines(path, [row | {place[0]: HUGE} for row in read_lines(path)])
    else:
        whole = inner = read_json(path)
        for key in place[:-1]:
            inner = inner[key]
        inner[place[-1]] = HUGE
        write_json(path, whole)
    tell(workdir)
    report.run(get_config("quickstart.py"), workdir)
    page = (workdir / "report/index.html").read_text()
    assert "over 1e+100" in page
    assert not re.search(r"\b(nan|inf)\b", page)


# ---- names


LONG = "x" * 300


def test_a_name_that_is_too_long_is_cut_and_stays_different():
    assert short_name("x" * LONGEST) == "x" * LONGEST
    names = {short_name(text) for text in (LONG, LONG + "y", "ä" * 200, "ä" * 201)}
    assert len(names) == 4
    assert all(len(name.encode()) <= LONGEST for name in names)


def test_labels_and_players_have_names_that_files_can_have(tmp_path, monkeypatch):
    config = get_config()
    config.annotate.backend, config.annotate.goal = "lexicon", LONG
    assert len(label_name(config.annotate).encode()) <= LONGEST - len(".html")
    home = tmp_path / ("x" * 250)
    monkeypatch.setattr("motif_jax.stages.evaluate.contenders.list_steps", lambda path, flag: (home, [10**9]))
    from motif_jax.envs.worlds import make_world

    found = find_contender(tmp_path, str(home), make_world(config.env), True, "--x")
    assert len(found.name.encode()) <= LONGEST
