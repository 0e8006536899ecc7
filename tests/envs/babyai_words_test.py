"""BabyAI-Text's words, as the published ones: sentences, prompts, French, names of actions, rewordings. No minigrid."""

import random

import numpy as np
import pytest
from conftest import refusal

from motif_jax.envs.babyai import words
from motif_jax.envs.babyai.level_settings import BabyAISettings
from motif_jax.envs.babyai.words import DONE, VIEW, caption, describe, prompt_text
from motif_jax.envs.babyai.world import BabyAIWorld

pytestmark = pytest.mark.quick
WALL, DOOR, KEY, BALL, BOX = 2, 4, 5, 6, 7
RED, GREEN, BLUE, PURPLE, YELLOW, GREY = range(6)


def view(cells) -> np.ndarray:
    """An image of empty cells and these: (steps to the right, steps forward) -> kind, colour, state."""
    image = np.tile(np.array([1, 0, 0], np.uint8), (VIEW, VIEW, 1))
    for (right, forward), cell in cells.items():
        image[3 + right, 6 - forward] = (*cell, 0, 0)[:3]
    return image


ROOM = {(x, 4): (WALL, GREY) for x in range(-3, 4)} | {(2, y): (WALL, GREY) for y in range(5)}


@pytest.mark.parametrize(("cells", "french"), [
    ({}, []),
    (
        {(0, 0): (BALL, GREEN), (2, 6): (KEY, YELLOW), (2, 1): (KEY, BLUE)},  # the farthest of a column first
        ["Tu portes une balle verte", "Tu vois une clef jaune 2 pas à droite et 6 pas devant",
         "Tu vois une clef bleue 2 pas à droite et 1 pas devant"],
    ),
    (ROOM, ["Tu vois un mur à 4 pas devant", "Tu vois un mur à 2 pas à droite"]),
    (
        {(-1, 3): (DOOR, RED, 0), (0, 3): (DOOR, GREY, 1), (1, 3): (DOOR, BLUE, 2)},
        ["Tu vois une porte rouge ouverte 1 pas à gauche et 3 pas devant",
         "Tu vois une porte grise fermée 3 pas devant",
         "Tu vois une porte bleue fermée à clef 1 pas à droite et 3 pas devant"],
    ),
])  # fmt: skip
def test_sentences_in_french(cells, french):
    """Those in English are compared with MiniGrid's own objects in babyai_levels_test.py."""
    assert describe(view(cells), words.FRENCH) == french


def test_objects_hide_walls_from_the_sentences_except_with_faithful_walls():
    thing = view(ROOM | {(0, 2): (KEY, RED), (1, 0): (BALL, RED)})
    assert [text for text in describe(thing) if "wall" in text] == []
    sentences = [text for text in describe(thing, faithful_walls=True) if "wall" in text]
    assert sentences == ["You see a wall 4 steps forward", "You see a wall 2 steps right"]
    door = view(ROOM | {(0, 4): (DOOR, RED, 0), (0, 6): (WALL, GREY)})
    assert not any("wall" in text and "forward" in text for text in describe(door, faithful_walls=True))


# ---- prompts


def test_a_prompt_has_the_published_form():
    first = "", ["You see a wall 2 steps left", "You see a red ball 1 step right"]
    assert prompt_text(words.ENGLISH, words.CANONICAL, "go to the red ball", [first]) == (
        "Possible action of the agent: turn left, turn right, go forward, pick up, drop, toggle"
        " \n Goal of the agent: go to the red ball"
        " \n Observation 0: You see a wall 2 steps left, You see a red ball 1 step right, \n Action 0: "
    )
    second = "turn right", ["You see a red ball 1 step forward"]
    assert prompt_text(words.ENGLISH, words.CANONICAL, "go to the red ball", [first, second]).endswith(
        " \n Observation 0: You see a wall 2 steps left, You see a red ball 1 step right, \n Action 0: turn right"
        " \n Observation 1: You see a red ball 1 step forward, \n Action 1: "
    )


# ---- missions in French


@pytest.mark.parametrize(("english", "french"), [
    ("open the door", "ouvrir la porte"),
    ("put the blue ball next to a green box", "poser la balle bleue à côté d'une boîte verte"),
    ("put a red key next to the red ball", "poser une clef rouge à côté de la balle rouge"),
    ("go to the red key after you pick up a grey ball", "aller à la clef rouge après avoir attrapé une balle grise"),
    ("open a door and go to the green object", "ouvrir une porte et aller à l'objet vert"),
    ("go to the blue door on your left after you open a box in front of you",
     "aller à la porte bleue à ta gauche après avoir ouvert une boîte devant toi"),
    ("win the game", "win the game"),
])  # fmt: skip
def test_missions_in_french(english, french):
    assert words.to_french(english) == french


@pytest.mark.differs(
    "glam", there="French missions come from replaced substrings", here="they are translated", reference="as published"
)
@pytest.mark.parametrize(("english", "french"), [
    ("go to the red box", "aller à la boîte rouge"),
    ("go to the red ball", "aller à une balle rouge"),  # "a" is in "ball"
    ("go to the red key after you pick up the grey box", "aller à une clef grise"),
    ("open the green door", "aller à la  verte"),
])  # fmt: skip
def test_missions_in_published_french(english, french):
    assert words.published_french(english) == french


# ---- other words


@pytest.mark.differs("glam", there="rewordings replace letters, also within words", here="they replace whole words")
def test_words_are_replaced_whole_and_in_one_pass():
    rewrite = words.make_rewrite(words.REWORDINGS["invented_words"])
    assert rewrite("You see a grey key, a keyboard and a red ball.") == "You see a sil dax, a keyboard and a faze xolo."
    assert words.make_rewrite(words.parse_rewording("key=ball, ball=key"))("a key, a ball") == "a ball, a key"
    assert words.make_rewrite({})("a key") == "a key"
    goal = "Goal of the agent: go to the red ball"
    assert words.make_rewrite(words.REWORDINGS["i_would_like"])(goal) == "I would like the agent to: go to the red ball"
    assert words.make_rewrite(words.REWORDINGS["you_have_to"])(goal) == "You have to: go to the red ball"


@pytest.mark.differs(
    "glam",
    there="eat, dance, sleep, do nothing, cut and think have French names too",
    here="`actions=french` names the game's six actions; other names can be written out",
)
def test_sets_of_actions():
    assert words.parse_actions("canonical") == ("turn left", "turn right", "go forward", "pick up", "drop", "toggle")
    assert words.parse_actions("restricted") == words.CANONICAL[:3]
    assert len(words.parse_actions("augmented")) == 9
    assert words.parse_actions("left,  right ,go  on") == ("left", "right", "go on")
    assert all(len(names) == 6 for name, names in words.ACTION_SETS.items() if name not in ("restricted", "augmented"))
    more = ("dormir", "ne rien faire", "penser")
    assert words.parse_actions(",".join((*words.ACTION_SETS["french"], *more))) == (*words.ACTION_SETS["french"], *more)


@pytest.mark.differs("glam", there="rewordings also replace letters in French prompts", here="these cannot be reworded")
@pytest.mark.parametrize(("values", "message"), [
    ({"actions": "canonicle"}, r"unknown set of actions 'canonicle' \(--config.env.babyai.actions\): did you mean"),
    ({"rewording": "synonym"}, "unknown rewording 'synonym'"),
    ({"actions": "go,,stop"}, "names of actions must differ, and none is empty, unlike 'go,,stop'"),
    ({"rewording": "key=a=b"}, "is written as key=chair,ball=table, unlike 'key=a=b'"),
    ({"rewording": "synonyms", "language": "french"}, "'synonyms' is of English words, where prompts are French"),
])  # fmt: skip
def test_bad_words_are_refused_in_one_sentence(values, message):
    refusal(lambda: BabyAIWorld(BabyAISettings(**values)).settings.check(), match=message)


# ---- captions


@pytest.mark.parametrize(("before", "action", "after", "text"), [
    (None, 6, {(0, 1): (WALL, GREY)}, "You stand before a wall."),
    ({(0, 1): (KEY, RED)}, 2, {(0, 1): (KEY, RED)}, "A red key is in your way."),
    ({(0, 1): (KEY, RED)}, 3, {(0, 0): (KEY, RED)}, "You pick up a red key."),
    ({(0, 1): (DOOR, RED, 2)}, 5, {(0, 1): (DOOR, RED, 2)}, "You cannot open a locked red door without its key."),
    ({(0, 1): (DOOR, RED, 2)}, 5, {(0, 1): (DOOR, RED, 0)}, "You unlock and open a red door."),
    ({(0, 1): (DOOR, RED, 1)}, 5, {(0, 1): (DOOR, RED, 0)}, "You open a red door."),
    ({(0, 1): (BOX, BLUE)}, 5, {}, "You open a blue box, which is gone."),
])  # fmt: skip
def test_captions_describe_the_effect_of_actions(before, action, after, text):
    seen = None if before is None else view(before)
    assert caption(seen, action, view(after), False) == text
    done = caption(seen, action, view(after), True)
    assert done.endswith(DONE)
    assert len(done) <= 256


def test_shuffled_missions_are_uniform_over_colours_and_kinds():
    mission, generator = "put the red ball next to a grey box behind you", random.Random(0)
    missions = {words.shuffle_words(mission, generator) for _ in range(2000)}
    assert len(missions) == 6 * 5 * 3 * 2  # all pairs of different colours, and of different kinds
    assert words.shuffle_words("open the door", generator) == "open the door"
