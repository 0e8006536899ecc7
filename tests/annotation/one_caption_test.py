"""Questions about one caption: whether it is helpful."""

import pytest
from nethack_texts import NETHACK

from motif_jax.annotation.annotator import Question
from motif_jax.annotation.parsing import read_label, read_verdict, to_answer
from motif_jax.annotation.prompts import make_prompt
from motif_jax.envs.texts import read_texts


@pytest.mark.differs(
    "oni",
    there='any mention of the word for "helpful" counts',
    here="in retrieval and classification, only the field that the prompt asks for counts, the last of several",
)
@pytest.mark.quick
@pytest.mark.parametrize(("text", "label"), [
    ('("helpful": yes)', 1.0),
    ('("helpful": no)', 0.0),
    ("**Helpful**: **Yes**", 1.0),
    ('{"helpful": "no"}', 0.0),
    ("helpful = yes", 1.0),
    ('It could be ("helpful": yes), but a wall helps nobody. ("helpful": no)', 0.0),  # the last counts
    ("It is very helpful: yesterday's monster is gone.", None),  # not the field
    ("Yes, this helps.", None),
    ('("helpful": ye\N{LATIN SMALL LETTER LONG S})', None),
    ("helpful: no\N{LATIN SMALL LETTER E WITH ACUTE}", None),
    ('("best_description": 1)', None),
    ("", None),
])  # fmt: skip
def test_only_the_tagged_field_is_a_label(text, label):
    assert read_label(text) == read_verdict(text, "helpful") == label


@pytest.mark.quick
@pytest.mark.parametrize("texts", [NETHACK, read_texts("a game of doors", None)])
@pytest.mark.parametrize("mode", ["reason", "score"])
def test_the_prompt_shows_one_caption_and_says_the_goal(texts, mode):
    prompt = make_prompt(texts, mode, "Open red doors, please.", "default", one=True)
    system, user = prompt.messages(Question("A {goal} opens."))
    assert prompt.one
    assert prompt.key == "helpful"
    assert prompt.verdicts == ['("helpful": yes)', '("helpful": no)']
    assert "Open red doors, please." in user["content"]
    assert '"description": "A {goal} opens."' in user["content"]
    assert not any(place in system["content"] + user["content"] for place in ("{game}", "{caption}", "{first}"))
    if mode == "reason":
        assert all(verdict in user["content"] and verdict in prompt.retry for verdict in prompt.verdicts)


@pytest.mark.quick
def test_the_probability_of_helpful_leaves_the_other_digit_out():
    answer = to_answer({"1": 0.3, "2": 0.5, "0": 0.1}, 1, 0, 1, one=True)
    assert (answer.yes, answer.mass) == (pytest.approx(0.75), pytest.approx(0.4))
    assert to_answer({"1": 0.0, "2": 0.9, "0": 0.0}, 1, 0, 1, one=True).yes is None
