"""Languages, names of actions, and rewordings of prompts, to test words that were not trained on.

The sentences are those of the published BabyAI-Text, including defects that models were trained on: the article is
always "a", and nothing is ever behind. Its French has "à" for walls alone.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from motif_jax.structs import UserError

DOOR, KEY, BALL, BOX = 4, 5, 6, 7  # MiniGrid's numbers of kinds of objects
COLOURS = ("red", "green", "blue", "purple", "yellow", "grey")  # in the order of MiniGrid's numbers
ACTIONS_FLAG, REWORDING_FLAG = "--config.env.babyai.actions", "--config.env.babyai.rewording"
MOST_ACTIONS = 32


class Language(NamedTuple):
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
    observation: str
    action: str


ENGLISH = Language(
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
    observation="Observation",
    action="Action",
)
FRENCH = Language(
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
    observation="Observation",
    action="Action",
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


def parse_actions(text: str) -> tuple[str, ...]:
    """Parses the name of a set of actions, or action names separated by commas; raises UserError for anything else.

    With fewer than six names, the rest of MiniGrid's actions cannot be taken.
    """
    if "," not in text:
        if text in ACTION_SETS:
            return ACTION_SETS[text]
        near = difflib.get_close_matches(text, ACTION_SETS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(ACTION_SETS)}, or name each"
        raise UserError(f"unknown set of actions {text!r} ({ACTIONS_FLAG}): {hint}")
    names = tuple(" ".join(name.split()) for name in text.split(","))
    if "" in names or len({*names}) < len(names) or len(names) > MOST_ACTIONS:
        raise UserError(
            f"names of actions must be 2 to {MOST_ACTIONS} different names, separated by commas, not {text!r:.100} "
            f"({ACTIONS_FLAG})"
        )
    return names


def parse_rewording(text: str) -> dict[str, str]:
    """Parses a known rewording, or `key=chair,ball=table`, to replacements by word; raises UserError for others."""
    if "=" not in text:
        if text in REWORDINGS:
            return REWORDINGS[text]
        near = difflib.get_close_matches(text, REWORDINGS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(REWORDINGS)}, or write key=chair"
        raise UserError(f"unknown rewording {text!r} ({REWORDING_FLAG}): {hint}")
    pairs = [tuple(word.strip() for word in pair.split("=")) for pair in text.split(",")]
    if any(len(pair) != 2 or not all(pair) for pair in pairs) or len({pair[0] for pair in pairs}) < len(pairs):
        raise UserError(
            f"a rewording must be pairs such as key=chair,ball=table, each word once, not {text!r:.100} "
            f"({REWORDING_FLAG})"
        )
    return {pair[0]: pair[1] for pair in pairs}


def make_rewrite(words: Mapping[str, str]) -> Callable[[str], str]:
    """Makes a function that replaces whole words in one pass, so that words can also be swapped."""
    if not words:
        return lambda text: text
    pattern = re.compile(r"\b(?:" + "|".join(map(re.escape, sorted(words, key=len, reverse=True))) + r")\b")
    return lambda text: pattern.sub(lambda found: words[found[0]], text)
