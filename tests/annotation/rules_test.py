"""Rules as data: a file per game, or of one's own; and the other texts of a game."""

import itertools

import pytest
from conftest import refusal
from nethack_texts import GOALS, NETHACK

from motif_jax.annotation.annotator import Question
from motif_jax.annotation.backends import Lexicon
from motif_jax.annotation.prompts import CHATS, MODES, make_prompt
from motif_jax.envs.texts import NO_RULES, read_rules, read_texts

pytestmark = pytest.mark.quick
RULE = "[[rule]]\nname = 'a'\npattern = 'x'\nworth = { progress = 1 }\n"


def test_prompts_of_nethack_are_known_by_the_same_hash():
    """Hashes of the records of annotations since there was one game."""
    hashes = [make_prompt(NETHACK, mode, "gold", version).hash for mode in ("reason", "score") for version in CHATS]
    assert hashes == ["9a5e2931bc386304", "b0a556966128961a", "6319e7e9b37d4985", "187357a63453f5d2"]


def test_the_version_depends_on_the_rules_and_not_on_comments(tmp_path):
    def version(text):
        (tmp_path / "rules.toml").write_text(text)
        return read_rules(tmp_path / "rules.toml", GOALS, "--flag").version

    assert version(RULE) == version(f"# a comment\n\n{RULE}")
    others = [RULE.replace(*pair) for pair in (("= 1", "= 2"), ("'x'", "'y'"), ("'a'", "'b'"), ("progress", "gold"))]
    assert len({version(text) for text in (RULE, RULE + others[2], *others)}) == 6


def test_a_game_with_a_directory_of_texts_has_goals_prompts_and_rules_of_its_own(tmp_path):
    (tmp_path / "goals.toml").write_text("ball = 'Get the ball.'")
    (tmp_path / "lexicon.toml").write_text(RULE.replace("progress", "ball"))
    (tmp_path / "default.toml").write_text("score = 'In {game}: {goal}'\ncaptions = '{first} {second}'")
    texts = read_texts("a game of balls", tmp_path)
    assert list(texts.goals) == ["defaultgoal", "zeroknowledge", "ball"]
    assert Lexicon(texts, "ball").answer(Question("x", "")).yes == 0.0
    assert Lexicon(texts, "defaultgoal").answer(Question("x", "")).yes == 0.5
    assert make_prompt(texts, "score", "ball", "default").request == "In a game of balls: Get the ball."
    assert texts.rules().aims == set()  # a worth of 1 is not what a goal asks for above all
    assert texts.rules().happenings()("xx") == ["a"]


def test_a_game_without_texts_is_asked_about_in_general_words_and_has_no_rules():
    texts = read_texts("a maze of rooms", None)
    for mode in MODES:
        system, user = make_prompt(texts, mode, "Prefer red doors.", "default").messages(Question("one", "two"))
        assert "NetHack" not in system["content"] + user["content"]
    assert texts.rules() == NO_RULES
    refusal(lambda: Lexicon(texts, "defaultgoal"), "no lexicon: name a file of rules (--config.annotate.lexicon)")


def test_the_worth_of_a_caption_is_the_sum_over_the_rules_that_match_its_lines():
    worth = NETHACK.rules().worth_to("gold")
    assert worth("$ - 3 gold pieces.\nYou descend the stairs.\nYou see here 2 gold pieces.") == (
        3 - 1 + 1.5,
        ("picks up gold", "goes down", "sees gold"),
    )
    assert Lexicon(NETHACK, "gold", 1.0).answer(Question("The door opens.")).yes == 1.0  # one is helpful or not
    assert worth("") == worth("You kill the newt!") == (0.0, ())  # beating a monster is worth 0 to this goal


# From best to worst; those in one set are worth the same.
ORDER = {
    "defaultgoal": [
        {"You kill the gnome!  Welcome to experience level 3."},
        {"You kill the newt!", "You descend the stairs.", "You destroy the kobold zombie!"},
        {"$ - 12 gold pieces."},
        {"You find a hidden door."},
        {"You hit the jackal.", "f - a dagger.", "This food really hits the spot!  You finish eating the food ration."},
        {"You see here a dagger.", "The door opens."},
        {"", "You hear a door open.", "You see here a newt corpse.", "The kitten bites the newt."},
        {"It's a wall.", "The jackal bites!", "You stop.  Your kitten is in the way!"},
        {"You are beginning to feel hungry."},
        {"You faint from lack of food.  You regain consciousness."},
        {"You die..."},
    ],
    "gold": [
        {"$ - 12 gold pieces.", "$ - 1 gold piece."},
        {"You find a hidden door."},
        {"The door opens.", "You finish eating."},
        {"", "You see here a dagger.", "You kill the newt!", "You hear someone counting money.", "It's a wall."},
        {"You descend the stairs."},
        {"Your purse feels lighter."},
        {"You die..."},
    ],
}


@pytest.mark.parametrize("goal", ORDER)
def test_captions_are_ordered_by_worth(goal):
    lexicon = Lexicon(NETHACK, goal)
    for better, worse in itertools.pairwise(ORDER[goal]):
        for first, second in itertools.product(better, worse):
            assert lexicon.answer(Question(first, second)).yes == 0.0, (first, second)
            assert lexicon.answer(Question(second, first)).yes == 1.0, (first, second)
    for same in ORDER[goal]:
        for first, second in itertools.product(same, same):
            assert lexicon.answer(Question(first, second)).yes == 0.5, (first, second)
