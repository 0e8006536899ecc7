"""Questions: roles, goals, versions, people's own; and verdicts as the paper's parser read them, measured on it."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nethack_texts import GOALS, NETHACK

from motif_jax.annotation.annotator import Question
from motif_jax.annotation.prompts import CHATS, KEYS, MODES, make_prompt, read_verdict, to_answer, verdict_probabilities
from motif_jax.envs.texts import read_texts
from motif_jax.structs import UserError

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(("text", "verdict"), [
    ("The Best Message: 1", 0.0),
    ("**best_description**: **2**", 1.0),
    ('Both are bad.\n\n("best_description":\n None)', 0.5),
    ('("best_description": 1) ... on second thought ("best_description": 2)', 0.0),  # the first counts
    ("best description 12", 1.0),  # the 1 passes for the one word in between
    ("best description would be 1", None),  # two words in between
    ('("best_description": 3)', None),
    ("be\N{LATIN SMALL LETTER LONG S}t_description: 1", None),  # the key is in ASCII
    ("best_description: \N{LATIN SMALL LETTER E WITH ACUTE} 2", 1.0),  # the one word in between need not be
    ("", None),
])  # fmt: skip
def test_verdicts(text, verdict):
    assert [read_verdict(text, key) for key in KEYS] == [verdict, verdict]


@pytest.mark.differs(
    "oni",
    there="a verdict counts only under the key `best_description`, so every answer to the prompt `reworded` is a tie",
    here="the key that the prompt asks for counts, or else that of the other published prompt",
)
def test_the_key_that_the_prompt_asks_for_goes_before_the_other():
    text = '("best_description": 1) vs ("best_message": 2)'
    asked = {version: make_prompt(NETHACK, "reason", "defaultgoal", version).key for version in CHATS}
    assert {version: read_verdict(text, key) for version, key in asked.items()} == {"default": 0.0, "reworded": 1.0}
    assert read_verdict('("best_message": 2) ("best_description": 1)', asked["default"]) == 0.0
    unreadable = '("best_message": unsure) so ("best_description": 2)'
    assert read_verdict(unreadable, asked["reworded"]) == 1.0  # the other one counts where its own has no verdict


@given(st.text(), st.sampled_from([("1", 0.0), ("2", 1.0), ("None", 0.5)]), st.text())
def test_a_verdict_is_found_wherever_it_stands(before, verdict, after):
    word, expected = verdict
    silent = read_verdict(before, KEYS[0]) is None and read_verdict(f"{before} ", KEYS[0]) is None
    if silent and "best" not in before.lower():
        assert read_verdict(f'{before} ("best_description": {word}) {after}', KEYS[0]) == expected


@pytest.mark.parametrize("version", CHATS)
def test_what_the_prompt_asks_for_can_be_read(version):
    prompt = make_prompt(NETHACK, "reason", "gold", version)
    assert [read_verdict(verdict, prompt.key) for verdict in prompt.verdicts] == [0.0, 1.0, 0.5]
    assert all(verdict in prompt.retry and verdict in prompt.request for verdict in prompt.verdicts)


@pytest.mark.differs(
    "oni",
    there='any mention of the word for "helpful" counts',
    here="in retrieval and classification, only the field that the prompt asks for counts, the last of several",
)
@pytest.mark.parametrize(("text", "label"), [
    ('("helpful": yes)', 1.0),
    ('("helpful": no)', 0.0),
    ("**Helpful**: **Yes**", 1.0),
    ('It could be ("helpful": yes), but a wall helps nobody. ("helpful": no)', 0.0),  # the last counts
    ("It is very helpful: yesterday's monster is gone.", None),  # not the field
    ('("helpful": ye\N{LATIN SMALL LETTER LONG S})', None),
    ("helpful: no\N{LATIN SMALL LETTER E WITH ACUTE}", None),
])  # fmt: skip
def test_only_the_tagged_field_is_a_label(text, label):
    assert read_verdict(text, "helpful") == label


def test_spellings_of_a_verdict_are_added_up():
    tokens = [(token, 0.0) for token in ("1", " 2", "▁1", "Ġ0", "(2", '"1', "12", "", "(", "one", "None", "3")]
    assert verdict_probabilities(tokens) == {"1": 3.0, "2": 2.0, "0": 1.0}
    tokens = [("1", math.log(0.4)), (" 1", math.log(0.1)), ("2", math.log(0.2)), ("I", math.log(0.3))]
    assert verdict_probabilities(tokens) == pytest.approx({"1": 0.5, "2": 0.2, "0": 0.0})


@pytest.mark.parametrize("found", [{}, {"1": 1e-9}, {"1": float("nan"), "2": 0.1}])
def test_a_model_that_gives_no_verdict_has_given_none(found):
    answer = to_answer({"1": 0.0, "2": 0.0, "0": 0.0} | found, (1, 0, 1))
    assert answer.yes is None
    assert "no verdict" in answer.said


def test_the_probability_of_helpful_leaves_the_other_digit_out():
    answer = to_answer({"1": 0.3, "2": 0.5, "0": 0.1}, (1, 0, 1), one=True)
    assert (answer.yes, answer.mass) == (pytest.approx(0.75), pytest.approx(0.4))
    assert to_answer({"1": 0.0, "2": 0.9, "0": 0.0}, (1, 0, 1), one=True).yes is None


PAIR = Question("You kill the newt!", "")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("version", CHATS)
def test_constant_text_comes_before_the_captions(mode, version):
    prompt = make_prompt(NETHACK, mode, "stairs", version)
    one, other = (prompt.messages(Question(f"{word} up", f"{word} down")) for word in ("A", "B"))
    assert one[0] == other[0]
    shared, _, _ = one[1]["content"].partition("A up")
    assert other[1]["content"].startswith(shared)
    assert prompt.request in shared


@pytest.mark.parametrize("goal", [*GOALS, "befriend all animals"])
def test_a_rating_goes_on_from_the_examples_of_its_goal(goal):
    prompt = make_prompt(NETHACK, "rate", goal, "rate", one=True)
    text = prompt.text(Question("You see {goal} here."))
    assert text.endswith("\n\nMessage: You see {goal} here.\nVerdict:")
    assert GOALS.get(goal, goal) in text
    for shown, (first, second) in zip(prompt.texts(PAIR), [("good", "bad"), ("bad", "good")], strict=True):
        verdicts = [line.removeprefix("Verdict: ") for line in shown.splitlines() if line.startswith("Verdict: ")]
        assert verdicts == [first, second, first, second]
    gold = "Message: $ - 42 gold pieces.\nVerdict: "
    assert text.count(gold + "good") == (goal in ("defaultgoal", "zeroknowledge", "gold"))
    assert text.count(gold + "bad") == (goal in ("combat", "stairs"))


@pytest.mark.parametrize("texts", [NETHACK, read_texts("a {goal} of doors", None)])
@pytest.mark.parametrize("mode", ["reason", "score"])
def test_the_prompt_shows_one_caption_and_says_the_goal(texts, mode):
    prompt = make_prompt(texts, mode, "Open red doors, please.", "default", one=True)
    system, user = prompt.messages(Question("A {goal} opens."))
    assert prompt.one
    assert prompt.key == "helpful"
    assert prompt.verdicts == ['("helpful": yes)', '("helpful": no)']
    assert "Open red doors, please." in user["content"]
    assert texts is NETHACK or "a {goal} of doors" in system["content"]
    assert '"description": "A {goal} opens."' in user["content"]
    assert not any(place in system["content"] + user["content"] for place in ("{game}", "{caption}", "{first}"))
    if mode == "reason":
        assert all(verdict in user["content"] and verdict in prompt.retry for verdict in prompt.verdicts)


def test_captions_are_taken_literally():
    prompt = make_prompt(NETHACK, "reason", "gold", "default")
    user = prompt.messages(Question("{second} {goal} \\1", "{first}"))[1]["content"]
    assert '"description_1": "{second} {goal} \\1"' in user
    assert '"description_2": "{first}"' in user


def test_models_without_a_system_role_get_its_text_from_the_user():
    plain = make_prompt(NETHACK, "reason", "gold", "default")
    prompt = make_prompt(NETHACK, "reason", "gold", "default", system_role=False)
    (user,) = prompt.messages(PAIR)
    assert user["content"].startswith(plain.system)
    assert prompt.hash != plain.hash


ANSWERED = "captions = '{first} {second}'\nreason = 'x {goal}'\nretry = 'y'\n"


@pytest.mark.parametrize(("text", "sentence"), [
    ("reason = 'x {goal}'\nretry = 'y'", "lacks the field 'captions'"),
    ("captions = '{first}'\nreason = 'x {goal}'\nretry = 'y'", r"no place for \{second\}"),
    ("captions = '{first} {second}'\nreasons = 'x'\nretry = 'y'", "'reasons' is not a field"),
    (ANSWERED + "system = 3", "'system' must be text, not 3"),
    (ANSWERED + "answers = 'x'", "`answers` must be a table of patterns"),
    (ANSWERED + "answers.first = 3\nanswers.second = 'b'", "`answers` must be a table of patterns"),
    ("captions = '{first} {second}'\nreason = 'x {goal}'\nretry = 'y'\nwithout = 'z'", "'without' is not a field"),
])  # fmt: skip
def test_prompt_files_that_cannot_work_are_refused(tmp_path, text, sentence):
    file = tmp_path / "mine.toml"
    file.write_text(text)
    with pytest.raises(UserError, match=sentence + r".*--config.annotate.prompt_file"):
        make_prompt(NETHACK, "reason", "gold", "default", str(file))


def test_a_rating_that_subtracts_itself_is_refused(tmp_path):
    file = tmp_path / "rate.toml"
    file.write_text("rate = 'x'\nwithout = 'z'\ncaptions = '{caption}'\nending = '.'\ngood = ' g'\nbad = ' b'\n")
    with pytest.raises(UserError, match=r"no place for \{goal\}.*--config.annotate.prompt_file"):
        make_prompt(NETHACK, "rate", "defaultgoal", "rate", str(file), one=True)
