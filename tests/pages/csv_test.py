"""Every page offers its figures as CSV, and no spreadsheet computes what a game or a model has said."""

import csv
import html
import io
import re
from urllib.parse import unquote

import pytest
from conftest import get_config
from report_workdir import write_workdir
from seeds_test import write_run

from motif_jax.pages.blocks import share_bar, table, tiles
from motif_jax.pages.formats import Interval
from motif_jax.pages.spreadsheet import Sheet, csv_link, of_intervals
from motif_jax.stages import report
from motif_jax.stages.report.seeds import write_page_over_seeds
from motif_jax.system.runs import plan

LINK = re.compile(r'href="data:text/csv;charset=utf-8,([^"]*)" download')
FORMULAS = ("=1+1", "+1+1", "-2+3", "@SUM(A1:A9)", "\t=1", " =1", "\N{FULLWIDTH EQUALS SIGN}1", '=HYPERLINK("x","y")',
            "-", "--5", "+")  # fmt: skip
PAGES = {
    "gold/report/index.html": {("figure", "of", "mean"), ("reward", "caption", "times"), ("line", "steps"),
                               ("figure", "value"), ("part", "share")},
    "gold/annotations/lexicon_msg_gold.html": {("pairs", "first", "second"), ("figure", "value"), ("part", "share")},
    "gold/reward/reward.html": {("reward", "caption", "times"), ("column", "count"), ("line", "epochs"),
                                ("figure", "value")},
    "seeds/report/index.html": {("figure", "of", "mean"), ("variant", "seed", "steps"), ("line", "steps")},
}  # fmt: skip


def sheets(page: str) -> list[list[list[str]]]:
    """All CSV files that a page has in itself."""
    found = [unquote(html.unescape(text)) for text in LINK.findall(page)]
    return [list(csv.reader(io.StringIO(text, newline=""))) for text in found]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    home = tmp_path_factory.mktemp("pages")
    write_workdir(home / "gold", events=FORMULAS, cause=FORMULAS[0])
    config = get_config("quickstart.py")
    config.report.runs = ""
    report.run(config, home / "gold")
    runs = plan("2", ["policy.discount=0.9,0.99"], 0)
    for run in runs:
        write_run(home / "seeds" / run.folder, 0.5 + 0.1 * run.seed)
    write_page_over_seeds(runs, home / "seeds")
    return home


@pytest.mark.parametrize("name", PAGES)
def test_every_page_offers_its_figures(made, name):
    found = sheets((made / name).read_text())
    for head in PAGES[name]:
        assert any(tuple(rows[0][: len(head)]) == head for rows in found), (head, [rows[0] for rows in found])
    assert all(len(rows) > 1 for rows in found)
    for rows in found:
        assert {len(row) for row in rows} == {len(rows[0])}
        for cell in (cell for row in rows for cell in row if cell.lstrip().startswith((*"=+-@\t", "\uff1d"))):
            float(cell)


def test_figures_are_numbers(made):
    (rows,) = [rows for rows in sheets((made / "seeds/report/index.html").read_text()) if rows[0][0] == "variant"]
    assert rows[0] == ["variant", "seed", "steps", "seconds", "episodes", "success"]
    assert rows[2] == ["policy.discount=0.9", "1", "2000", "1.0", "20", "0.6"]
    (rows,) = [rows for rows in sheets((made / "gold/report/index.html").read_text()) if rows[1][0] == "episodes"]
    assert rows[0] == ["figure", "of", "mean", "low", "high", "median", "n"]
    assert [row[-1] for row in rows[1:] if row[0] in ("episodes", "score")] == ["", "", "10", "10"]
    (rows,) = sheets(csv_link(of_intervals([("score", [Interval(-1.5, -2, n=7), None])], ["a", "b"])))
    assert rows[1:] == [["score", "a", "-1.5", "-2", "", "", "7"], ["score", "b", "", "", "", "", ""]]
    (rows,) = sheets(table(("what", "n"), [["<b>1,234,567</b>", "&minus; <i>x</i>"], ["-1,000.5", "1,23"]]))
    assert rows[1:] == [["1234567", "\N{MINUS SIGN}  x"], ["-1000.5", "1,23"]]
    assert sheets(tiles([("1,234", "games"), ("=1", "a formula")])) == [
        [["figure", "value"], ["games", "1234"], ["a formula", "'=1"]]
    ]
    assert sheets(share_bar([("first", 1 / 3, "line"), ("tie", 0.0, "tie")])) == [
        [["part", "share"], ["first", "0.333333"], ["tie", "0.0"]]
    ]
    assert not sheets(tiles([]) + share_bar([]))


@pytest.mark.parametrize("text", FORMULAS)
def test_what_others_wrote_is_never_a_formula(text):
    for link in (csv_link(Sheet((text, "b"), [(1, text)])), table(("a", text), [["1", html.escape(text)]])):
        assert link.count("<a ") == 1
        for cell in (cell for row in sheets(link)[0] for cell in row if cell not in ("1", "a", "b")):
            assert cell.startswith("'") or cell == text.strip() == "", cell
