"""The question: roles, goals, versions, and people's own."""

import pytest
from nethack_texts import GOALS, NETHACK

from motif_jax.annotation.annotator import Question
from motif_jax.annotation.prompts import CHATS, MODES, make_prompt
from motif_jax.envs.texts import read_texts
from motif_jax.structs import UserError

pytestmark = pytest.mark.quick
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


@pytest.mark.parametrize(("text", "sentence"), [
    ("reason = 'x {goal}'\nretry = 'y'", "lacks the field 'captions'"),
    ("captions = '{first}'\nreason = 'x {goal}'\nretry = 'y'", r"no place for \{second\}"),
    ("captions = '{first} {second}'\nreasons = 'x'\nretry = 'y'", "'reasons' is not a field"),
])  # fmt: skip
def test_prompt_files_that_cannot_work_are_refused(tmp_path, text, sentence):
    file = tmp_path / "mine.toml"
    file.write_text(text)
    with pytest.raises(UserError, match=sentence + r".*--config.annotate.prompt_file"):
        make_prompt(NETHACK, "reason", "gold", "default", str(file))
