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

from motif_jax.pages.blocks import Table, csv_link
from motif_jax.stages import report
from motif_jax.stages.report import write_page_over_seeds
from motif_jax.system.runs import plan

LINK = re.compile(r'href="data:text/csv;charset=utf-8,([^"]*)" download')
FORMULAS = ("=1+1", "+1+1", "-2+3", "@SUM(A1:A9)", "\t=1", " =1", "\N{FULLWIDTH EQUALS SIGN}1", '=HYPERLINK("x","y")',
            "-", "--5", "+")  # fmt: skip
PAGES = ("gold/report/index", "gold/annotations/lexicon_msg_gold", "gold/reward/reward", "seeds/report/index")


def sheets(page: str) -> list[list[list[str]]]:
    files = [unquote(html.unescape(text)) for text in LINK.findall(page)]
    return [list(csv.reader(io.StringIO(text, newline=""))) for text in files]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    home = tmp_path_factory.mktemp("pages")
    write_workdir(home / "gold", events=FORMULAS, cause=FORMULAS[0])
    config = get_config("quickstart.py")
    config.report.runs = ""
    report.STAGE.run(report.STAGE.view(config.to_dict()), home / "gold")
    runs = plan("2", ["policy.discount=0.9,0.99"], 0)
    for run in runs:
        write_run(home / "seeds" / run.folder, 0.5 + 0.1 * run.seed)
    write_page_over_seeds(runs, home / "seeds")
    return home


@pytest.mark.parametrize("name", PAGES)
def test_every_page_offers_its_figures(made, name):
    files = sheets((made / f"{name}.html").read_text())
    assert len(files) > 2
    assert all(len(rows) > 1 for rows in files)
    for rows in files:
        assert {len(row) for row in rows} == {len(rows[0])}
        for cell in (cell for row in rows for cell in row if cell.lstrip().startswith((*"=+-@\t", "\uff1d"))):
            float(cell)


@pytest.mark.parametrize("text", FORMULAS)
def test_texts_in_csv_are_never_formulas(text):
    for link in (csv_link(((text, "b"), [(1, text)])), Table(("a", text), [["1", text]]).html()):
        assert link.count("<a ") == 1
        for cell in (cell for row in sheets(link)[0] for cell in row if cell not in ("1", "a", "b")):
            assert cell.startswith("'") or cell == text.strip() == "", cell
