"""The rules that stand in for a language model."""

import itertools

import pytest
from nethack_texts import GOALS, NETHACK

from motif_jax.annotation.annotator import Question
from motif_jax.annotation.lexicon import Lexicon
from motif_jax.structs import UserError

pytestmark = pytest.mark.quick

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
def test_what_is_better(goal):
    lexicon = Lexicon(NETHACK, goal)
    for better, worse in itertools.pairwise(ORDER[goal]):
        for first, second in itertools.product(better, worse):
            assert lexicon.answer(Question(first, second)).yes == 0.0, (first, second)
            assert lexicon.answer(Question(second, first)).yes == 1.0, (first, second)
    for same in ORDER[goal]:
        for first, second in itertools.product(same, same):
            assert lexicon.answer(Question(first, second)).yes == 0.5, (first, second)


def test_with_a_temperature_small_differences_are_small_preferences():
    lexicon = Lexicon(NETHACK, "gold", 1.0)
    gold, door, wall = "$ - 3 gold pieces.", "The door opens.", "It's a wall."  # worth 3, 0.25 and 0
    assert lexicon.answer(Question(gold, door)).yes == pytest.approx(0.0600867, abs=1e-7)  # 1 / (1 + exp(2.75))
    assert lexicon.answer(Question(wall, door)).yes == pytest.approx(0.5621765)  # 1 / (1 + exp(-0.25))
    assert lexicon.answer(Question(wall, "")).yes == 0.5
    assert lexicon.answer(Question(door)).yes == 1.0  # a single caption is helpful or not


def test_every_rule_of_nethack_matters_to_some_goal_and_every_goal_to_some_rule():
    rules = NETHACK.rules().rules
    for rule in rules:
        assert any(rule.worth.values()), f"lexicon.toml: the rule {rule.name!r} has no worth to any goal"
    for goal in GOALS:
        assert any(rule.worth_to(goal) for rule in rules), f"lexicon.toml: no rule has a worth to the goal {goal!r}"


def test_goals_of_ones_own_need_a_language_model():
    for goal in GOALS:
        dies = Lexicon(NETHACK, goal).answer(Question("", "You die..."))
        assert dies.yes == 0.0, f"lexicon.toml: the rule 'dies' has no worth to the goal {goal!r}"
    with pytest.raises(UserError, match=r"knows the goals defaultgoal, .*not 'drink from fountains'.*backend=vllm"):
        Lexicon(NETHACK, "drink from fountains")
