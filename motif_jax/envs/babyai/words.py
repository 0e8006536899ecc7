"""Texts of BabyAI: languages, names of actions, rewordings, French missions; sentences, captions and prompts.

The sentences are those of the published BabyAI-Text, including defects that models were trained on: the article is
always "a", and nothing is ever behind. Its French has "à" for walls alone. Rewordings test words that were not trained
on.

Sentences and captions are pure functions of images: kind, colour and state of each cell in view, [7, 7, 3] uint8, as
[column, row] from column 0, leftmost, and row 0, farthest. The player's own cell has the carried object.
"""

from __future__ import annotations

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
    """Templates of sentences, and the words that fill them."""

    carry: str
    wall: str
    thing: str
    door: str
    step: str  # one step
    steps: str
    left: str
    right: str
    forward: str
    both: str  # between the two parts of a place
    kinds: Mapping[int, str]
    colours: Sequence[str]
    states: Sequence[str]  # of doors
    actions: str  # labels of a prompt
    goal: str
    observation: str = "Observation"
    action: str = "Action"


ENGLISH = Wording(
    carry="You carry a {colour} {kind}",
    wall="You see a wall {place}",
    thing="You see a {colour} {kind} {place}",
    door="You see a {state} {colour} {kind} {place}",
    step="{count} step {side}",
    steps="{count} steps {side}",
    left="left",
    right="right",
    forward="forward",
    both=" and ",
    kinds={DOOR: "door", KEY: "key", BALL: "ball", BOX: "box"},
    colours=COLOURS,
    states=("open", "closed", "locked"),
    actions="Possible action of the agent:",
    goal="Goal of the agent:",
)
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
THING = r"(the|a) (?:(\w+) )?(door|key|ball|box|object)(" + "|".join(PLACES) + ")?"
CLAUSES = [  # English; French, and the same after "après"
    (rf"go to {THING}", "aller à {}", "être allé à {}"),
    (rf"pick up {THING}", "attraper {}", "avoir attrapé {}"),
    (rf"open {THING}", "ouvrir {}", "avoir ouvert {}"),
    (rf"put {THING} next to {THING}", "poser {} à côté de {}", "avoir posé {} à côté de {}"),
]
JOINTS = {", then ": ", puis ", " and ": " et ", " after you ": " après "}

MISSIONS = (  # texts with their words
    "go to the a an object, then pick up and open, after you put next to .",
    "aller à être allé attraper avoir attrapé ouvrir ouvert poser à côté de d'une d'un l'objet un la le, puis et après",
)


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
    """Translates a mission of MiniGrid into French; returns any other sentence unchanged.

    A mission is one or more clauses such as "put the red ball next to a grey box", joined by JOINTS.
    """
    french, after = "", 0
    for part in re.split(f"({'|'.join(JOINTS)})", mission):
        after = 1 if part == " after you " else after
        clauses = ((forms, re.fullmatch(pattern, part)) for pattern, *forms in CLAUSES)
        forms, clause = next((found for found in clauses if found[1]), ((), None))
        if part not in JOINTS and not clause:
            return mission
        words = clause.groups() if clause else ()
        things = (_thing(*words[at : at + 4]) for at in range(0, len(words), 4))
        french += forms[after].format(*things) if forms else JOINTS[part]
    return french.replace("de une ", "d'une ").replace("de un ", "d'un ")


def _thing(article: str, colour: str | None, kind: str, where: str | None) -> str:
    the, a, noun, adjectives = ("l'", "un ", "objet", MASCULINE)
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
    texts = list(MISSIONS)
    for part in (part for language in LANGUAGES.values() for part in language):
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
    cells = image.tolist()
    sentences = []
    kind, colour, _ = cells[COLUMN][ROW]
    if kind > WALL:
        english = {"english_kind": ENGLISH.kinds[kind], "english_colour": COLOURS[colour]}
        sentences.append(language.carry.format(kind=language.kinds[kind], colour=language.colours[colour], **english))
    lines = (
        (language.forward, ((COLUMN, row) for row in range(ROW - 1, -1, -1))),
        (language.left, ((column, ROW) for column in range(COLUMN - 1, -1, -1))),
        (language.right, ((column, ROW) for column in range(COLUMN + 1, VIEW))),
    )
    for side, line in lines:
        if distance := _wall_at([cells[column][row][0] for column, row in line], faithful_walls):
            sentences.append(language.wall.format(place=_part(language, distance, side)))
    for column in range(VIEW):
        for row in range(VIEW):
            kind, colour, state = cells[column][row]
            if kind > WALL and (column, row) != (COLUMN, ROW):
                words = {"kind": language.kinds[kind], "colour": language.colours[colour]}
                words["place"] = place(language, column - COLUMN, ROW - row)
                template = language.door if kind == DOOR else language.thing
                sentences.append(template.format(state=language.states[state], **words))
    return sentences


def _wall_at(kinds: Iterable[int], faithful: bool) -> int:
    """Returns the steps to the wall in a line of cells, the nearest first; 0 if it is not mentioned."""
    for distance, kind in enumerate(kinds, 1):
        if kind == WALL:
            return distance
        if kind > WALL and (kind == DOOR or not faithful):
            return 0
    return 0


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
    happened = _happened(before, action, after) if before is not None else ""
    if done:
        return f"{happened} {DONE}".lstrip()
    if happened:
        return happened
    ahead, _ = _near(after)
    return "The way ahead is free." if ahead[0] in (UNSEEN, EMPTY) else f"You stand before {_a(ahead)}."


def _happened(before: np.ndarray, action: int, after: np.ndarray) -> str:
    (ahead, held), (now, holds) = _near(before), _near(after)
    is_open = ahead[0] == DOOR and ahead[2] == OPEN
    if action == FORWARD and np.array_equal(before, after) and ahead[0] > EMPTY and not is_open:
        return f"{_a(ahead).capitalize()} is in your way."
    if action == PICK_UP and holds != held:
        return f"You pick up {_a(holds)}."
    if action == DROP and holds != held:
        return f"You drop {_a(held)}."
    if action == TOGGLE and ahead[0] == DOOR:
        if now[2] == ahead[2]:
            return f"You cannot open {_a(ahead)} without its key."
        verb = "close" if now[2] != OPEN else "unlock and open" if ahead[2] == LOCKED else "open"
        return f"You {verb} a {_name(ahead)}."
    if action == TOGGLE and ahead[0] == BOX and now != ahead:
        return f"You open a {_name(ahead)}, which is gone."
    return ""


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
