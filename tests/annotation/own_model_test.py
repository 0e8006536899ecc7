"""A judge in this process: verdicts of a language model, in both orders; what it cannot do is said first."""

import numpy as np
import pytest
from conftest import get_config
from own_models import write_own

from motif_jax.annotation import backends
from motif_jax.annotation.annotator import PAUSE, Question
from motif_jax.annotation.own_model import LEAST, OwnModel
from motif_jax.annotation.prompts import make_prompt
from motif_jax.envs.texts import texts_of
from motif_jax.language.hub_config import make_config
from motif_jax.language.loaded import Language
from motif_jax.language.model import make_language_model
from motif_jax.stages import annotate
from motif_jax.structs import UserError
from motif_jax.system.shared_lines import slug
from motif_jax.tokens import WordTokeniser

pytestmark = pytest.mark.quick
PAIRS = [Question("You kill the jackal!", "It's a wall."), Question("", "You find gold."), Question("a", "b")]


def texts():
    return texts_of({"world": "nethack"}, "")


def make_judge(version="examples", mode="score"):
    tokeniser = WordTokeniser.from_texts(
        ["1", "2", "0", "(", "You kill the jackal!", "It's a wall. a b find gold.", " good", " bad"]
    )
    config = make_config("qwen2", tokeniser.size, 16, 2, 2, max_position_embeddings=4096)
    language = Language(make_language_model(config, seed=1), tokeniser)
    template = make_prompt(texts(), mode, "defaultgoal", version, one=mode == "rate")
    return OwnModel(language, template, None, "tiny"), language


def test_a_pair_is_shown_in_both_orders_and_the_log_odds_are_averaged():
    judge, language = make_judge()
    found = dict(judge.answers([PAIRS[0], PAUSE, *PAIRS[1:]]))
    for question in PAIRS:
        texts = [judge._template.text(one) for one in (question, question.turned)]
        first, second, neither = np.exp(language.score(texts, ["1", "2", "0"])).T
        z = np.log((second + neither / 2) / (first + neither / 2))
        assert found[question].yes == pytest.approx(1 / (1 + np.exp(-(z[0] - z[1]) / 2)), abs=1e-5)
        assert found[question].mass == pytest.approx((first + second + neither).mean(), rel=1e-4)
    turned = dict(judge.answers([question.turned for question in PAIRS]))
    assert [turned[one.turned].yes for one in PAIRS] == pytest.approx([1 - found[one].yes for one in PAIRS], abs=1e-5)


def test_a_rating_is_the_log_odds_of_good_averaged_over_the_orders_of_the_examples():
    judge, language = make_judge("rate", "rate")
    captions = [Question("You kill the jackal!"), Question("")]
    found = dict(judge.answers(captions))
    for question in captions:
        scores = language.score(judge._template.texts(question), [" good", " bad"])  # of both orders of the examples
        odds = (scores[:, 0] - scores[:, 1]).mean()
        assert len(scores) == 2
        assert found[question].yes == pytest.approx(1 / (1 + np.exp(-odds)), abs=1e-5)


def test_a_model_that_names_a_place_says_nothing_about_captions_and_that_is_told(capsys, monkeypatch):
    judge, _ = make_judge()
    strong = np.log([[0.01, 0.97, 0.02]])  # always the second
    monkeypatch.setattr(judge, "_next", lambda rows: np.repeat(strong, len(rows), 0))
    asked = [Question(f"a {number}", "b") for number in range(LEAST)]
    assert {answer.yes for _, answer in judge.answers(asked)} == {0.5}
    assert "100% of 200 pairs get the other caption when their order is turned" in capsys.readouterr().out
    list(judge.answers(asked))
    assert capsys.readouterr().out == ""  # once


def test_without_probability_for_any_verdict_there_is_none(monkeypatch):
    judge, _ = make_judge()
    monkeypatch.setattr(judge, "_next", lambda rows: np.full((len(rows), 3), -20.0))
    ((_, answer),) = judge.answers(PAIRS[:1])
    assert answer.yes is None
    assert "no verdict" in answer.said


def test_an_empty_stream_is_no_question():
    assert list(make_judge()[0].answers([PAUSE, PAUSE])) == []


def test_a_tokeniser_without_digits_is_refused():
    tokeniser = WordTokeniser.from_texts(["one two"])
    config = make_config("qwen2", tokeniser.size, 8, 1, 2, max_position_embeddings=64)
    language = Language(make_language_model(config, seed=1), tokeniser)
    with pytest.raises(UserError, match="no tokens for the verdicts '1', '2', '0' .*--config.annotate.model"):
        OwnModel(language, make_prompt(texts(), "score", "gold", "examples"), None, "tiny")


def config_of(**values):
    config = get_config("quickstart.py")
    config.annotate.update({"backend": "model", "mode": "score", "prompt": "examples"} | values)
    return config


@pytest.mark.parametrize(("values", "said"), [
    ({"mode": "reason"}, "is asked in mode score"),
    ({"model": ""}, "name a directory, a GGUF file, or smollm2"),
    ({"model": "/nothing.gguf"}, "there is no file '/nothing.gguf'"),
    ({"model": "/nothing"}, "there is no directory '/nothing'"),
    ({"backend": "server"}, "which only a model in this process is given"),
])  # fmt: skip
def test_what_cannot_work_is_refused_before_anything_is_loaded(values, said):
    with pytest.raises(UserError, match=said):
        annotate.check(annotate.STAGE.view(config_of(**{"model": "smollm2"} | values)))


@pytest.mark.parametrize(
    ("name", "prompt", "said"),
    [
        ("qwen3", "default", "has no known format of conversations"),
        ("t5", "examples", "is an encoder-decoder"),
    ],
)
def test_a_model_that_cannot_be_asked_so_is_refused(tmp_path, name, prompt, said):
    from motif_jax.stages.annotate.setup import make_backend

    write_own(name, tmp_path)
    with pytest.raises(UserError, match=said):
        make_backend(annotate.STAGE.view(config_of(model=str(tmp_path), prompt=prompt))).open()


@pytest.mark.parametrize(("mode", "prompt", "small", "label"), [
    ("rate", "auto", True, "model_msg_defaultgoal_rate"),
    ("score", "auto", True, "model_msg_defaultgoal_examples_score"),
    ("score", "auto", False, "model_msg_defaultgoal_default_score"),
    ("score", "reworded", True, "model_msg_defaultgoal_reworded_score"),
])  # fmt: skip
def test_small_models_get_examples_unless_a_prompt_is_named(tmp_path, monkeypatch, mode, prompt, small, label):
    write_own("qwen3", tmp_path / "model")
    monkeypatch.setattr(backends, "SMALL", 10**9 if small else 10)
    section = annotate.STAGE.view(config_of(model=str(tmp_path / "model"), mode=mode, prompt=prompt)).annotate
    assert backends.Model.label(section).removeprefix(slug(str(tmp_path)) + "_") == label
