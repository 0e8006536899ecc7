"""The trial of a judge: what it says of judges whose errors are known, and whom it stops."""

import json

import numpy as np
import pytest
from conftest import get_config, run_stage
from small_dataset import MANY, random_pairs, write_dataset

from motif_jax.annotation.annotator import QuestionAnswer
from motif_jax.annotation.backends import CaptionBackend
from motif_jax.annotation.lexicon import Lexicon
from motif_jax.experiment import defaults
from motif_jax.stages import find_stage, report
from motif_jax.stages.check_judge import Answer, CheckJudge, measure, problem_of
from motif_jax.structs import UserError

pytestmark = pytest.mark.quick
HERE = "check_judge_test"


class Told(CaptionBackend):
    """A judge that answers as a function of the question says."""

    is_model, model = True, "told"

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
    """The stage, and what it has written."""
    if not (tmp_path / "dataset").exists():
        write_dataset(tmp_path / "dataset", random_pairs(600, events=MANY))
    config = get_config("quickstart.py")
    config.annotate.update(backend=f"{HERE}:Told", model=judge, both_orders=1.0, cache_dir="")
    config.update_from_flattened_dict({name.replace("__", "."): value for name, value in values.items()})
    stage = find_stage("check_judge")
    view = stage.view(config.to_dict())
    stage.check(view)
    try:
        stage.run(view, tmp_path)
    finally:
        file = tmp_path / "check_judge/trial.json"
        trial = json.loads(file.read_text()) if file.exists() else None
    return trial, stage.is_complete(view, tmp_path)


def test_a_judge_that_agrees_with_the_rules_passes_and_has_a_page(tmp_path, capsys):
    trial, complete = run(tmp_path, "right")
    assert complete
    assert trial["problem"] == ""
    assert (trial["agreement"]["value"], trial["reversals"]["value"]) == (1.0, 0.0)
    assert "agrees with the rules in 100% [" in capsys.readouterr().out
    page = (tmp_path / "check_judge/index.html").read_text()
    assert "Nothing speaks against this judge" in page
    assert "are decided as by the rules" in page
    run_stage(report, defaults(), tmp_path)
    shown = (tmp_path / "report/index.html").read_text()
    assert '<section><h2 id="the-judge">The judge</h2>' in shown
    assert "Nothing speaks against this judge" in shown


@pytest.mark.parametrize(("judge", "said"), [
    ("wrong", "it agrees with the rules no more than chance, 0% "),
    ("second", "the better caption of 100% of the pairs changes with their order: it names a place"),
    ("mute", "100% of its answers have no verdict"),
])  # fmt: skip
def test_a_judge_that_fails_is_refused_unless_anyway(tmp_path, judge, said):
    with pytest.raises(UserError, match=f"not good enough: {said}.*--config.check_judge.anyway=True"):
        run(tmp_path, judge)
    trial, complete = run(tmp_path, judge, check_judge__anyway=True)
    assert complete
    assert trial["problem"]


def test_a_judge_that_names_a_place_is_known_by_its_reversals_and_a_wider_margin_is_advised():
    rng = np.random.default_rng(0)
    rules = rng.integers(0, 2, 400).astype(float)
    place = [Answer("a", "b", 0.9, 0.2, one) for one in rules]  # the second place, a little more often the second one
    figures = measure(place, 0.1, ordered=True)
    limits = CheckJudge(decided=0.0)
    assert figures["reversals"].value == 1.0
    assert figures["decided"].value == 0.0  # the mean is 0.55
    assert "names a place" in problem_of(figures, limits, 0.1)
    # Unsure answers are right by chance, sure ones always.
    sure = rng.random(400) < 0.5
    right = np.where(rng.random(400) < 0.5, rules, 1 - rules)
    answers = [
        Answer("a", "b", yes, yes, one)
        for yes, one in zip(np.where(sure, 0.05 + 0.9 * rules, 0.35 + 0.3 * right), rules, strict=True)
    ]
    figures = measure(answers, 0.1, ordered=False)
    assert figures["reversals"] is None
    assert figures["agreement"].value == pytest.approx(((right == rules) | sure).mean())
    assert "--config.annotate.tie_margin=0.2, " in problem_of(figures, CheckJudge(agreement=0.9), 0.1)
