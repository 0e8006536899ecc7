"""Numbers as large as a computer has, and names longer than a file system takes: no traceback, and one line."""

import itertools
import math
import re

import numpy as np
import pytest
from conftest import get_config
from report_workdir import tell, write_workdir

import motif_jax
from motif_jax.config.table import PATH, PATHS
from motif_jax.experiment import tables
from motif_jax.files import LONGEST, read_json, read_lines, short_name, write_json, write_lines, write_whole
from motif_jax.pages import charts, formats
from motif_jax.pages.formats import LARGEST, Interval, number
from motif_jax.pages.over_seeds import estimate, improvement, seeds_needed
from motif_jax.stages import report
from motif_jax.stages.annotate.setup import label_name
from motif_jax.stages.evaluate.contenders import find_contender
from motif_jax.stages.evaluate.summary import intervals, show
from motif_jax.structs import UserError
from motif_jax.system.runs import plan

pytestmark = pytest.mark.quick
HUGE = 1.7e308
SHOWN = (0.0, 1.0, -1.0, 1.0 + 1e-15, LARGEST, -LARGEST, 1 / LARGEST, -1 / LARGEST, 1e-13, 3e-13, 1e16)


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


def test_ordinary_numbers_keep_their_bits():
    values = np.random.default_rng(0).normal(size=50) * 1e6
    assert intervals({"a": values}, 0, 50)["a"]["mean"] == float(values.mean())
    assert estimate([values]).value == float(np.mean(values))


@pytest.mark.parametrize("values", list(itertools.combinations_with_replacement(SHOWN, 2)))
def test_pages_draw_every_number_that_they_take(values):
    with np.errstate(all="raise", under="ignore"):
        shown = [number(value) for value in values]
        low, high = sorted(shown)
        interval = Interval(shown[0], low, high)
        points = [(step, shown[step % 2]) for step in range(500)]
        drawn = [
            charts.curves({"a": points, "b": points[:1]}, "steps", levels=[charts.Level("x", interval)]),
            charts.curves({"a": points}, "steps", bands={"a": charts.Band([0, 1], [low, low], [high, high])}),
            charts.bars([("a", "", [interval, None])], ["x", "y"]),
            charts.dots(shown, interval, *charts.reach([interval]), "first"),
            charts.columns([abs(one) for one in shown], ["a", "b"]),
            *map(formats.exact, shown), *map(formats.amount, shown),
        ]  # fmt: skip
        marks = formats.ticks(low, high)
        arrays = np.array(shown), np.array(shown[::-1])
        assert improvement(*arrays)
        seeds_needed(*arrays)
    assert marks[0] < marks[-1]
    assert len(formats.labels(marks)) == len(marks)
    assert not any(word in text for text in drawn for word in ("nan", "inf"))
    assert max(map(len, drawn[-2:])) < 30


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
    report.STAGE.run(report.STAGE.view(get_config("quickstart.py")), workdir)
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


def test_a_file_may_have_the_longest_name(tmp_path):
    file = tmp_path / ("x" * LONGEST)
    for text in (b"one", b"two"):
        write_whole(file, lambda out, text=text: out.write(text))
    assert file.read_bytes() == b"two"
    assert len(list(tmp_path.iterdir())) == 1


def test_labels_and_players_have_names_that_files_can_have(tmp_path, monkeypatch):
    config = get_config()
    config.annotate.backend, config.annotate.goal = "lexicon", LONG
    assert len(label_name(config.annotate).encode()) <= LONGEST - len(".html")
    home = tmp_path / ("x" * 250)
    monkeypatch.setattr("motif_jax.stages.evaluate.contenders.list_steps", lambda path, flag: (home, [10**9]))
    from motif_jax.envs.worlds import make_world

    found = find_contender(tmp_path, str(home), make_world(config.env), True, "--x")
    assert len(found.name.encode()) <= LONGEST


PATH_FLAGS = [
    f"{section}.{name}" for section, table in tables().items() if section
    for name, value in table.items() if value.kind in (PATH, PATHS)
]  # fmt: skip


@pytest.mark.parametrize("flag", PATH_FLAGS)
def test_a_path_with_a_name_that_is_too_long_is_refused_by_its_flag(flag):
    section, _, name = flag.partition(".")
    value = tables()[section][name]
    with pytest.raises(UserError, match=rf"part of more than 255 bytes.*--config.{flag}"):
        value.kind.check(name, f"--config.{flag}", f"runs/{LONG}")


@pytest.mark.parametrize("load", [motif_jax.load_policy, motif_jax.load_reward, motif_jax.load_language])
def test_what_notebooks_load_is_refused_in_one_line(load):
    for name in (LONG, f"motif_jax/{LONG}", f"a\nb/{LONG}"):
        with pytest.raises(UserError) as refused:
            load(name)
        assert "\n" not in str(refused.value)


def test_variants_of_a_sweep_need_folders():
    sweeps = [f"policy.{letter}={letter * 150}" for letter in "abc"]
    with pytest.raises(UserError, match=r"^no folder can be named .*--sweep"):
        plan("", sweeps, 0)


def test_a_message_is_one_line_whatever_it_quotes():
    assert str(UserError("cannot read 'x':\n  Traceback\r\n\n  of a library (--x)")) == (
        "cannot read 'x': Traceback  of a library (--x)"
    )
