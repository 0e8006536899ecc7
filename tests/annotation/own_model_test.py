"""A judge in this process: verdicts of a language model, scored or written."""

import functools

import numpy as np
import pytest
from conftest import get_config, refusal
from nethack_texts import NETHACK
from own_models import write_own

from motif_jax.annotation.annotator import PAUSE, Question
from motif_jax.annotation.own_model import OwnModel, OwnReasons
from motif_jax.annotation.prompts import make_prompt
from motif_jax.annotation.section import SamplingSection
from motif_jax.language.chat import CHATML, ChatFormat
from motif_jax.language.config import make_config
from motif_jax.language.loaded import Language
from motif_jax.language.model import make_language_model
from motif_jax.stages import annotate
from motif_jax.stages.annotate import make_backend
from motif_jax.tokens import WordTokeniser

pytestmark = pytest.mark.quick
PAIRS = [Question("You kill the jackal!", "It's a wall."), Question("", "You find gold."), Question("a", "b")]


@functools.cache
def model_with(*words, positions=4096):
    tokeniser = WordTokeniser.from_texts(words)
    config = make_config("qwen2", tokeniser.size, 16, 2, 2, max_position_embeddings=positions)
    return Language(make_language_model(config, seed=1), tokeniser)


def make_judge(version="examples", mode="score"):
    language = model_with("1", "2", "0", "(", "You kill the jackal!", "It's a wall. a b find gold.", " good", " bad")
    template = make_prompt(NETHACK, mode, "defaultgoal", version, one=mode == "rate")
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


def test_what_a_caption_is_worth_without_the_goal_is_subtracted_from_its_rating(tmp_path):
    file = tmp_path / "rate.toml"
    file.write_text(
        'rate = "{goal}"\nwithout = "a b"\ncaptions = "{caption}"\nending = "."\ngood = " good"\nbad = " bad"\n'
        '[examples.other]\ngood = ["a"]\nbad = ["b"]\n'
    )
    language = model_with("You kill the jackal!", "It's a wall. a b find gold.", " good", " bad")
    template = make_prompt(NETHACK, "rate", "find gold", "rate", str(file), one=True)
    assert [text.split("\n")[0] for text in template.texts(Question("a"))] == ["find gold"] * 2 + ["a b"] * 2
    captions = [Question("You kill the jackal!"), Question("")]
    found = dict(OwnModel(language, template, None, "tiny").answers(captions))
    for question in captions:
        good, bad = language.score(template.texts(question), [" good", " bad"]).T
        (one, other), (plain, reversed_plain) = (good - bad).reshape(2, 2)
        odds = (one + other) / 2 - (plain + reversed_plain) / 2
        assert found[question].yes == pytest.approx(1 / (1 + np.exp(-odds)), abs=1e-5)


# So few words that some random texts of a model have a verdict.
FEW = ["best_description helpful : ( )", "1", "2", "None", "yes", "no", "a b You find gold. stop"]
STOPS = ChatFormat("stops", {"system": ("", ""), "user": ("", ""), "assistant": ("", "stop")}, ())
FIRST, SECOND = (("a", "You", "find", "gold", "a a", "b b", ". .", "find find", ""), ("b", "a b", "gold gold"))
ASKED = [Question(first, second) for first in FIRST for second in SECOND]
AGAIN = "\n[asked again] "


def make_reasons(seed=0, positions=4096, file="", one=False, temperature=1.0):
    language = model_with(*FEW, positions=positions)
    template = make_prompt(NETHACK, "reason", "gold", "default", file, one=one)
    judge = OwnReasons(language, template, STOPS, SamplingSection(temperature, 1.0, -1, 24), seed, "tiny")
    return judge, language, template


@pytest.mark.parametrize("one", [False, True])
def test_an_analysis_is_written_and_a_missing_verdict_is_the_most_probable_one(one, monkeypatch):
    judge, language, template = make_reasons(one=one)
    texts, generate = [], language.generate_tokens

    def spy(*args, **options):
        texts.extend(found := generate(*args, **options))
        return found

    monkeypatch.setattr(language, "generate_tokens", spy)
    asked = [*map(Question, FIRST)] if one else ASKED
    found = dict(judge.answers([*asked[:2], PAUSE, *asked[2:]]))
    assert [*found] == asked
    kinds = set()
    for (question, answer), text in zip(found.items(), texts, strict=True):
        analysis, _, verdict = answer.said.partition(AGAIN)
        assert analysis == language.tokeniser.decode(text)
        assert "stop" not in analysis.split()  # it ends the assistant's messages of this format
        talk = template.messages(question)
        row, written = STOPS.encode(language.tokeniser, talk), min(24, len(text) + 1)  # with the end
        kinds.add(bool(verdict))
        if not verdict:
            assert answer.yes == template.read(analysis) is not None
            assert (answer.prompt_tokens, answer.output_tokens) == (len(row), written)
            continue
        assert template.read(analysis) is None
        again = STOPS.encode(language.tokeniser, template.again(talk, analysis))
        best = language.score([again], template.verdicts)[0].argmax()
        assert (verdict, answer.yes) == (template.verdicts[best], template.read(verdict))
        assert answer.yes is not None
        assert answer.prompt_tokens == len(row) + len(again)
        assert answer.output_tokens == written + len(language.tokeniser.encode(verdict))
    assert one or kinds == {True, False}


def test_samples_differ_and_are_the_same_in_another_run_in_any_order():
    def first(seed=0, asked=ASKED, **values):
        return {question: answer.said for question, answer in make_reasons(seed, **values)[0].answers(asked)}

    found = first()
    assert first(asked=[*ASKED[::-1][:4], PAUSE, *ASKED[::-1][4:]]) == found
    assert first(1) != found
    assert first(1, temperature=0.0) == first(0, temperature=0.0)
    twice = [answer.said for _, answer in make_reasons()[0].answers([one for one in ASKED for _ in range(2)])]
    assert twice[::2] == [*found.values()]
    same = [one for one, other in zip(twice[::2], twice[1::2], strict=True) if one == other]
    assert len(same) < len(ASKED) / 4  # which are of a word or two


def test_a_context_that_is_too_short_for_an_analysis_is_refused_when_the_model_is_opened():
    refusal(lambda: make_reasons(positions=99), "answer up to 24, but the model 'tiny' reads at most 99 ", "max_tokens")
    judge, language, template = make_reasons()
    shortest = len(STOPS.encode(language.tokeniser, template.messages(Question("", ""))))
    judge = make_reasons(positions=shortest + 24 + 2)[0]
    found = [answer for _, answer in judge.answers([Question("a", "b")] * 9)]  # too short to be asked again
    assert any(answer.yes is None for answer in found)
    assert not any(AGAIN in answer.said for answer in found)
    refusal(lambda: list(judge.answers([Question("a a a", "b")])), "sampling.max_tokens, --config.annotate.model")


@pytest.mark.parametrize("mode", ["score", "reason"])
def test_the_batch_size_bounds_the_questions_that_are_computed_together(tmp_path, mode):
    write_own("qwen3", tmp_path)
    config, drawn = get_config("quickstart.py"), list[Question]()
    config.annotate.update({"backend": "model", "mode": mode, "model": str(tmp_path), "chat_format": "chatml"})
    config.annotate.batch_size = 2
    config.annotate.sampling.max_tokens = 4
    judge = make_backend(annotate.STAGE.view(config.to_dict())).open()
    questions = [Question(str(at), "b") for at in range(5)]
    next(judge.answers(drawn.append(one) or one for one in questions))
    assert drawn == questions[:2]


def test_the_format_of_conversations_can_be_named(tmp_path):
    write_own("qwen3", tmp_path)
    config = get_config("quickstart.py")
    config.annotate.update({"backend": "model", "mode": "reason", "model": str(tmp_path), "chat_format": "chatml"})
    assert make_backend(annotate.STAGE.view(config.to_dict())).open()._chat is CHATML
    config.annotate.chat_format = "jinja"
    refusal(lambda: annotate.STAGE.view(config.to_dict()), match="chat_format.*chatml, llama3, llama2")
