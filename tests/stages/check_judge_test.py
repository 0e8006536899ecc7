import re

import pytest
from conftest import get_config, refusal, run_stage
from small_dataset import MANY, random_pairs, write_dataset

from motif_jax.annotation.annotator import QuestionAnswer
from motif_jax.annotation.backends import CaptionBackend, Lexicon
from motif_jax.experiment import defaults
from motif_jax.files import read_json
from motif_jax.stages import find_stage, report

pytestmark = pytest.mark.quick


class Told(CaptionBackend):
    is_model, weights, model = True, "", "told"

    def metadata(self):
        return {"model": self.section.model}

    def check(self):
        pass

    def open(self):
        return self

    def answers(self, questions):
        rules = Lexicon(self.texts, "defaultgoal")
        for question in filter(None, questions):
            right = rules.answer(question).yes
            yes = {"right": right, "wrong": 1 - right, "second": 1.0, "tie": 0.5, "mute": None}[self.section.model]
            yield question, QuestionAnswer(yes)

    def close(self):
        pass


def run(tmp_path, judge, **values):
    if not (tmp_path / "dataset").exists():
        write_dataset(tmp_path / "dataset", random_pairs(600, events=MANY))
    config = get_config("quickstart.py", **values)
    config.annotate.update(backend="check_judge_test:Told", model=judge, both_orders=1.0, cache_dir="")
    stage = find_stage("check_judge")
    view = stage.view(config.to_dict())
    stage.check(view, tmp_path)
    stage.run(view, tmp_path)
    return read_json(tmp_path / "check_judge/trial.json"), stage.is_complete(view, tmp_path)


def test_a_judge_that_agrees_with_the_rules_passes_and_has_a_page(tmp_path, capsys):
    trial, complete = run(tmp_path, "right")
    assert complete
    assert (trial["agreement"]["value"], trial["reversals"]["value"]) == (1.0, 0.0)
    assert re.search(r"check_judge: 100% \[.* are decided as by the rules", capsys.readouterr().out)
    run_stage(report, defaults(), tmp_path)
    shown = (tmp_path / "report/index.html").read_text()
    assert '<section><h2 id="the-judge">The judge</h2>' in shown
    assert "Nothing speaks against this judge" in shown
    assert (tmp_path / "check_judge/index.html").is_file()


@pytest.mark.parametrize("changed", ["weights", "goal"])
def test_a_judge_of_other_files_or_for_another_goal_is_tried_again(tmp_path, monkeypatch, changed):
    assert run(tmp_path, "right")[1]
    config = get_config("quickstart.py")
    config.annotate.update(backend="check_judge_test:Told", model="right", both_orders=1.0, cache_dir="")
    stage = find_stage("check_judge")
    assert stage.is_complete(stage.view(config.to_dict()), tmp_path)
    if changed == "goal":
        config.annotate.goal = "gold"
    else:
        monkeypatch.setattr(Told, "weights", "of other files")
    assert not stage.is_complete(stage.view(config.to_dict()), tmp_path)


def test_captions_with_a_bottom_line_that_the_dataset_lacks_are_refused(tmp_path):
    write_dataset(tmp_path / "dataset", random_pairs(600, events=MANY))
    (tmp_path / "dataset/data/blstats.npy").unlink()
    said = "the dataset has no 'blstats', which moments of NetHack have: choose msg (--config.annotate.captions)"
    refusal(lambda: run(tmp_path, "right", annotate__captions="msg_minbl"), said)


@pytest.mark.parametrize(("judge", "said"), [
    ("wrong", "its agreement with the rules is no better than chance, 0% "),
    ("second", "the better caption of 100% of the pairs changes with their order: it names a place"),
    ("mute", "100% of its answers have no verdict"),
])  # fmt: skip
def test_a_judge_that_fails_is_refused_unless_anyway(tmp_path, judge, said):
    refusal(lambda: run(tmp_path, judge), match=f"not good enough: {said}.*--config.check_judge.anyway=True")
    _, complete = run(tmp_path, judge, check_judge__anyway=True)
    assert complete
    assert "Not good enough" in (tmp_path / "check_judge/index.html").read_text()
