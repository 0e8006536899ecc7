"""Texts of BabyAI: languages, names of actions, rewordings, French missions; sentences, captions and prompts.

The sentences are those of the published BabyAI-Text, including defects that models were trained on: the article is
always "a", and nothing is ever behind. Its French has "à" for walls alone. Rewordings test words that were not trained
on.

Sentences and captions are pure functions of images: kind, colour and state of each cell in view, [7, 7, 3] uint8, as
[column, row] from column 0, leftmost, and row 0, farthest. The player's own cell has the carried object.
"""

from __future__ import annotations

import functools
import itertools
import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from motif_jax.envs.world import suggest
from motif_jax.structs import UserError

DOOR, KEY, BALL, BOX = 4, 5, 6, 7  # MiniGrid's numbers of kinds of objects
COLOURS = ("red", "green", "blue", "purple", "yellow", "grey")  # in the order of MiniGrid's numbers
ACTIONS_FLAG, REWORDING_FLAG = "--config.env.babyai.actions", "--config.env.babyai.rewording"
HELD_OUT = ("yellow box", "red key", "green ball", "red door", "grey door")  # named by no mission of training levels


class Wording(NamedTuple):
    """Templates of sentences, and the words that fill them; the defaults are the English ones."""

    carry: str = "You carry a {colour} {kind}"
    wall: str = "You see a wall {place}"
    thing: str = "You see a {colour} {kind} {place}"
    door: str = "You see a {state} {colour} {kind} {place}"
    step: str = "{count} step {side}"  # one step
    steps: str = "{count} steps {side}"
    left: str = "left"
    right: str = "right"
    forward: str = "forward"
    both: str = " and "  # between the two parts of a place
    kinds: Mapping[int, str] = {DOOR: "door", KEY: "key", BALL: "ball", BOX: "box"}
    colours: Sequence[str] = COLOURS
    states: Sequence[str] = ("open", "closed", "locked")  # of doors
    actions: str = "Possible action of the agent:"  # labels of a prompt
    goal: str = "Goal of the agent:"
    observation: str = "Observation"
    action: str = "Action"


ENGLISH = Wording()
FRENCH = Wording(
    carry="Tu portes une {kind} {colour}",
    wall="Tu vois un mur à {place}",
    thing="Tu vois une {kind} {colour} {place}",
    door="Tu vois une {kind} {colour} {state} {place}",
    step="{count} pas {side}",
    steps="{count} pas {side}",
    left="à gauche",
    right="à droite",
    forward="devant",
    both=" et ",
    kinds={DOOR: "porte", KEY: "clef", BALL: "balle", BOX: "boîte"},
    colours=("rouge", "verte", "bleue", "violette", "jaune", "grise"),
    states=("ouverte", "fermée", "fermée à clef"),
    actions="Actions possibles pour l'agent:",
    goal="But de l'agent:",
)
# As published: the carried object keeps its English words, in French order.
PUBLISHED_FRENCH = FRENCH._replace(carry="Tu portes une {english_kind} {english_colour}")
LANGUAGES = {"english": ENGLISH, "french": FRENCH}

# The first six are MiniGrid's actions in its order; further actions do nothing.
CANONICAL = ("turn left", "turn right", "go forward", "pick up", "drop", "toggle")
ACTION_SETS = {
    "canonical": CANONICAL,
    "restricted": CANONICAL[:3],
    "augmented": (*CANONICAL, "sleep", "do nothing", "think"),
    "rotate": ("rotate left", "rotate right", "move ahead", "take", "release", "switch"),
    "shift": ("shift left", "shift right", "go ahead", "take", "release", "turn"),
    "french": ("tourner à gauche", "tourner à droite", "aller tout droit", "attraper", "lâcher", "basculer"),
}
NOUNS = {"key": "dax", "ball": "xolo", "box": "afze"}
ADJECTIVES = {"red": "faze", "green": "jatu", "blue": "croh", "purple": "vurst", "yellow": "gakul", "grey": "sil"}
REWORDINGS: dict[str, dict[str, str]] = {
    "none": {},
    "other_nouns": {"key": "chair", "ball": "table", "box": "car"},
    "synonyms": {
        "red": "vermilion", "green": "jade", "blue": "cyan", "purple": "violet", "yellow": "golden", "grey": "silver",
    },
    "invented_nouns": NOUNS,
    "invented_adjectives": ADJECTIVES,
    "invented_words": NOUNS | ADJECTIVES,
    "i_would_like": {"Goal of the agent": "I would like the agent to"},
    "you_have_to": {"Goal of the agent": "You have to"},
}  # fmt: skip

# Missions in French
FRENCH_NOUNS = {ENGLISH.kinds[kind]: FRENCH.kinds[kind] for kind in (DOOR, KEY, BALL, BOX)}
FRENCH_ADJECTIVES = dict(zip(COLOURS, FRENCH.colours, strict=True))
MASCULINE = dict(zip(COLOURS, ("rouge", "vert", "bleu", "violet", "jaune", "gris"), strict=True))  # of "objet"
PLACES = {
    " in front of you": " devant toi", " behind you": " derrière toi",
    " on your left": " à ta gauche", " on your right": " à ta droite",
}  # fmt: skip
VERBS = {  # also after "après", and other words of a mission
    "go to": ("aller à", "être allé à"), "pick up": ("attraper", "avoir attrapé"), "open": ("ouvrir", "avoir ouvert"),
    "put": ("poser", "avoir posé"), "next to": ("à côté de",) * 2, ", then": (", puis",) * 2, "and": ("et",) * 2,
}  # fmt: skip
THING = rf"(the|a) (?:(\w+) )?(door|key|ball|box|object)({'|'.join(PLACES)})?"
CLAUSE = rf"(?:(?:go to|pick up|open) {THING}|put {THING} next to {THING})"
MISSION = re.compile(rf"{CLAUSE}(?:(?:, then | and | after you ){CLAUSE})*")
PHRASE = re.compile(rf"{THING}|{'|'.join(VERBS)}")


def parse_actions(text: str) -> tuple[str, ...]:
    """Parses the name of a set of actions, or action names separated by commas.

    With fewer than six names, the rest of MiniGrid's actions cannot be taken.
    """
    if "," not in text:
        if text in ACTION_SETS:
            return ACTION_SETS[text]
        hint = suggest(text, ACTION_SETS, f"choose from {', '.join(ACTION_SETS)}, or name each")
        raise UserError(f"unknown set of actions {text!r} ({ACTIONS_FLAG}): {hint}")
    names = tuple(" ".join(name.split()) for name in text.split(","))
    if "" in names or len({*names}) < len(names):
        raise UserError(f"names of actions must differ, and none is empty, unlike {text!r:.100} ({ACTIONS_FLAG})")
    return names


def parse_rewording(text: str) -> dict[str, str]:
    """Parses a known rewording, or `key=chair,ball=table`, to replacements by word."""
    if "=" not in text:
        if text in REWORDINGS:
            return REWORDINGS[text]
        hint = suggest(text, REWORDINGS, f"choose from {', '.join(REWORDINGS)}, or write key=chair")
        raise UserError(f"unknown rewording {text!r} ({REWORDING_FLAG}): {hint}")
    pairs = [[word.strip() for word in pair.split("=")] for pair in text.split(",")]
    if not all(len(pair) == 2 and all(pair) for pair in pairs):
        raise UserError(f"a rewording is written as key=chair,ball=table, unlike {text!r:.100} ({REWORDING_FLAG})")
    return dict(pairs)


def make_rewrite(words: Mapping[str, str]) -> Callable[[str], str]:
    """Makes a function that replaces whole words in one pass, so that words can also be swapped."""
    if not words:
        return lambda text: text
    pattern = re.compile(r"\b(?:" + "|".join(map(re.escape, sorted(words, key=len, reverse=True))) + r")\b")
    return lambda text: pattern.sub(lambda match: words[match[0]], text)


def shuffle_words(mission: str, generator: random.Random) -> str:
    """Renames the colours and kinds in a mission at random, so that it tells nothing about its aim."""
    renamed: dict[str, str] = {}
    for words in (COLOURS, tuple(NOUNS)):
        renamed |= dict(zip(words, generator.sample(words, len(words)), strict=True))
    return make_rewrite(renamed)(mission)


def to_french(mission: str) -> str:
    """Translates a mission such as "put the red ball next to a grey box"; returns any other sentence unchanged."""
    if not MISSION.fullmatch(mission):
        return mission
    parts = mission.split(" after you ")
    parts = [PHRASE.sub(functools.partial(_translate, after=bool(number)), part) for number, part in enumerate(parts)]
    return " après ".join(parts).replace("de une ", "d'une ").replace("de un ", "d'un ")


def _translate(phrase: re.Match[str], after: bool) -> str:
    article, colour, kind, where = phrase.groups()
    if not article:
        return VERBS[phrase[0]][after]
    the, a, noun, adjectives = "l'", "un ", "objet", MASCULINE
    if kind != "object":
        the, a, noun, adjectives = "la ", "une ", FRENCH_NOUNS[kind], FRENCH_ADJECTIVES
    adjective = adjectives.get(colour or "", "")
    return (the if article == "the" else a) + noun + f" {adjective}".rstrip() + PLACES.get(where or "", "")


def published_french(mission: str) -> str:
    """Translates as published, only "go to X": "aller à" with the last article, noun and adjective in the mission.

    They are found as substrings. The "a" of "ball" and "after" counts as an article, and the noun of doors is missing.
    """

    def last(words: dict[str, str]) -> str:
        return next((french for english, french in reversed(words.items()) if english in mission), "")

    nouns = {"box": "boîte", "ball": "balle", "key": "clef"}
    return f"aller à {last({'the': 'la', 'a': 'une'})} {last(nouns)} {last(FRENCH_ADJECTIVES)}"


def all_words() -> tuple[str, ...]:
    """Returns texts with all words of prompts, in all wordings, for a language model that is trained from scratch."""
    texts = [  # of missions
        "go to the a an object, then pick up and open, after you put next to .",
        "aller à être allé attraper avoir attrapé ouvrir ouvert poser "
        "à côté de d'une d'un l'objet un la le, puis et après",
    ]
    for part in (*ENGLISH, *FRENCH):
        texts += [part] if isinstance(part, str) else part.values() if isinstance(part, Mapping) else part
    texts = [text.replace("{", " ").replace("}", " ") for text in texts]
    texts += itertools.chain(*ACTION_SETS.values())
    for words in (*REWORDINGS.values(), FRENCH_NOUNS, FRENCH_ADJECTIVES, MASCULINE, PLACES):
        texts += [*words, *words.values()]
    return (*texts, *map(str, range(64)))  # numbers of steps and observations


# ---- sentences and captions of an image

VIEW = 7  # cells on a side
COLUMN, ROW = 3, 6  # of the player, who faces row 0
UNSEEN, EMPTY, WALL = 0, 1, 2
FORWARD, PICK_UP, DROP, TOGGLE = 2, 3, 4, 5  # MiniGrid's numbers of actions
DONE = "You have done what you were asked to do."
OPEN, CLOSED, LOCKED = 0, 1, 2
Cell = tuple[int, int, int]


def describe(image: np.ndarray, language: Wording = ENGLISH, faithful_walls: bool = False) -> list[str]:
    """Returns the sentences of a view.

    They begin with the carried object, and the walls ahead, to the left and to the right. Objects and doors follow,
    column by column from the left, the farthest of a column first.

    Args:
      image: see the module docstring.
      language: the templates and words.
      faithful_walls: mention a wall even if an object lies before it. Otherwise, as published, objects hide walls from
        the sentences, though the image shows them. Doors always hide walls, because they replace a part of the wall.
    """
    cells, sentences = image.tolist(), []

    def say(template: str, cell: Cell, where: str = "") -> None:
        kind, colour, state = cell
        words = {"kind": language.kinds[kind], "colour": language.colours[colour], "state": language.states[state]}
        english = {"english_kind": ENGLISH.kinds[kind], "english_colour": COLOURS[colour]}
        sentences.append(template.format(place=where, **words, **english))

    if (own := cells[COLUMN][ROW])[0] > WALL:
        say(language.carry, own)
    beside = [column[ROW] for column in cells]
    ahead, left, right = cells[COLUMN][ROW - 1 :: -1], beside[COLUMN - 1 :: -1], beside[COLUMN + 1 :]
    for side, line in ((language.forward, ahead), (language.left, left), (language.right, right)):
        for distance, (kind, *_) in enumerate(line, 1):
            if kind == WALL:
                sentences.append(language.wall.format(place=_part(language, distance, side)))
            if kind in (WALL, DOOR) or (kind > WALL and not faithful_walls):
                break
    for column, row in itertools.product(range(VIEW), repeat=2):
        if (cell := cells[column][row])[0] > WALL and (column, row) != (COLUMN, ROW):
            say(language.door if cell[0] == DOOR else language.thing, cell, place(language, column - COLUMN, ROW - row))
    return sentences


def place(language: Wording, right: int, forward: int) -> str:
    """Returns a place as steps to the right (negative: left) and forward."""
    aside = language.right if right > 0 else language.left
    parts = ((abs(right), aside), (forward, language.forward))
    return language.both.join(_part(language, count, side) for count, side in parts if count)


def _part(language: Wording, count: int, side: str) -> str:
    return (language.step if count == 1 else language.steps).format(count=count, side=side)


def caption(before: np.ndarray | None, action: int, after: np.ndarray, done: bool) -> str:
    """Returns the caption of a moment: the effect of the last action, or else the object right before the player.

    There are only a few hundred different captions, so a judge is seldom asked about a new one.

    `before`, `after`: the views before the action, None at the beginning, and now. `action`: MiniGrid's number.
    `done`: whether the mission was accomplished.
    """
    (now, holds), text = _near(after), ""
    ahead, held = (now, holds) if before is None else _near(before)
    is_open = ahead[0] == DOOR and ahead[2] == OPEN
    if before is None:
        pass
    elif action == FORWARD and np.array_equal(before, after) and ahead[0] > EMPTY and not is_open:
        text = f"{_a(ahead).capitalize()} is in your way."
    elif action == PICK_UP and holds != held:
        text = f"You pick up {_a(holds)}."
    elif action == DROP and holds != held:
        text = f"You drop {_a(held)}."
    elif action == TOGGLE and ahead[0] == DOOR and now[2] == ahead[2]:
        text = f"You cannot open {_a(ahead)} without its key."
    elif action == TOGGLE and ahead[0] == DOOR:
        verb = "close" if now[2] != OPEN else "unlock and open" if ahead[2] == LOCKED else "open"
        text = f"You {verb} a {_name(ahead)}."
    elif action == TOGGLE and ahead[0] == BOX and now != ahead:
        text = f"You open a {_name(ahead)}, which is gone."
    if done:
        return f"{text} {DONE}".lstrip()
    free = now[0] in (UNSEEN, EMPTY)
    return text or ("The way ahead is free." if free else f"You stand before {_a(now)}.")


def _near(image: np.ndarray) -> tuple[Cell, Cell]:
    """Returns the cell right before the player, and the player's own."""
    return tuple(image[COLUMN, ROW - 1].tolist()), tuple(image[COLUMN, ROW].tolist())


def _name(cell: Cell) -> str:
    return f"{ENGLISH.colours[cell[1]]} {ENGLISH.kinds[cell[0]]}"


def _a(cell: Cell) -> str:
    if cell[0] == WALL:
        return "a wall"
    state = f"{ENGLISH.states[cell[2]]} " if cell[0] == DOOR else ""
    return f"{'an' if state.startswith('o') else 'a'} {state}{_name(cell)}"


def prompt_text(
    language: Wording, actions: Sequence[str], goal: str, moments: Iterable[tuple[str, Sequence[str]]]
) -> str:
    """Returns the text that a language model continues with an action.

        Possible action of the agent: turn left, turn right, go forward, pick up, drop, toggle
         Goal of the agent: go to the red ball
         Observation 0: You see a wall 2 steps left, You see a red ball 1 step right,
         Action 0: turn right
         Observation 1: You see a red ball 1 step forward,
         Action 1:

    Each line but the first begins with a space, and each but the last ends with one; the last ends with ": ".
    `moments`: the last observations in sentences, each after the name of the action before it.
    """
    text = f"{language.actions} {', '.join(actions)} \n {language.goal} {goal}"
    for number, (action, sentences) in enumerate(moments):
        seen = "".join(f"{sentence}, " for sentence in sentences)
        text += f"{action * bool(number)} \n {language.observation} {number}: {seen}\n {language.action} {number}: "
    return text


# Fixed prompts

# Goal and objects in view: steps to the right (negative: left) and forward, 0 and 0 if it is carried; kind; colour.
Things = tuple[tuple[int, int, int, str], ...]
BESIDE: Things = ((-2, 4, BOX, "grey"), (3, 1, KEY, "green"))  # distractors
SCENES: dict[str, tuple[str, Things]] = {
    "go to it, 3 steps ahead": ("go to the red ball", (*BESIDE, (0, 3, BALL, "red"))),
    "go to it, 2 steps left": ("go to the red ball", (*BESIDE, (-2, 0, BALL, "red"))),
    "go to it, 2 steps right": ("go to the red ball", (*BESIDE, (2, 0, BALL, "red"))),
    "go to it, left and ahead": ("go to the red ball", (*BESIDE, (-1, 2, BALL, "red"))),
    "go to it, not in sight": ("go to the red ball", BESIDE),
    "go to it, not in sight, wall ahead": ("go to the red ball", (*BESIDE, (0, 1, WALL, "grey"))),
    "pick it up, right ahead": ("pick up the blue key", (*BESIDE, (0, 1, KEY, "blue"))),
    "put it next to the box, box left and ahead": (
        "put the blue key next to the yellow box", ((0, 0, KEY, "blue"), (-1, 1, BOX, "yellow")),
    ),
    "open it, with its key, right ahead": (
        "open the purple door", ((0, 0, KEY, "purple"), (0, 1, DOOR, "purple")),
    ),
}  # fmt: skip


def image_of(things: Things) -> np.ndarray:
    """Returns the view of these objects, with locked doors, and of empty cells."""
    image = np.zeros((VIEW, VIEW, 3), np.uint8)
    image[..., 0] = EMPTY
    for right, forward, kind, colour in things:
        image[COLUMN + right, ROW - forward] = kind, COLOURS.index(colour), LOCKED if kind == DOOR else 0
    return image
