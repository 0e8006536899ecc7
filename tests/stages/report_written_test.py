"""The report's part on a written reward."""

import pytest

from motif_jax.experiment import defaults
from motif_jax.run import Run
from motif_jax.stages import report
from motif_jax.stages.write_reward.job import HEAD, TITLE, blocks_of

pytestmark = pytest.mark.quick
ROW = {"program": "gained(gold)", "error": "", "agreement": 0.9, "findings": ["its largest reward is 200"]}
BAD = {"program": "<b>gold</b>", "error": "line 1, column 1: unexpected '<'"}
RECORD = {
    "goal": "own <i>gold</i>", "writer": "scripted", "model": "", "judge": "lexicon", "world": "nethack",
    "rounds": [[ROW, BAD], [ROW | {"agreement": None}]], "best": ROW, "agreement_on_others": 0.8, "episodes": 47,
    "pairs": [40, 41],
}  # fmt: skip


def page(workdir, **changes):
    with Run(workdir).stage("write_reward", "write_reward") as stage:
        stage.section(TITLE, *blocks_of(RECORD | changes))
        stage.report(HEAD)
    report.run(defaults(), workdir)
    return (workdir / "report/index.html").read_text()


def test_the_best_program_and_all_others_are_shown(tmp_path):
    text = page(tmp_path)
    assert "<h1>A reward, written as a program</h1>" in text
    assert "<pre>gained(gold)</pre>" in text
    assert "<b>80%</b><span>of 41 others</span>" in text
    assert "<li>its largest reward is 200</li>" in text
    assert "written by templates, which know nothing of games" in text
    assert "&lt;b&gt;gold&lt;/b&gt;" in text
    assert "unexpected" in text
    assert "own &lt;i&gt;gold&lt;/i&gt;" in text
    assert "more are in" not in text
    assert "learnt reward" not in text
    assert report.is_complete(defaults(), tmp_path)
    with Run(tmp_path).stage("write_reward", "write_reward") as stage:
        stage.section(TITLE, *blocks_of(RECORD | {"writer": "server", "model": "mine"}))
        stage.report()
    assert not report.is_complete(defaults(), tmp_path)
    assert "written by mine" in page(tmp_path, writer="server", model="mine")
