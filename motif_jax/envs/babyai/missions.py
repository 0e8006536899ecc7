"""Translates MiniGrid's English missions into French.

A mission is one or more clauses such as "put the red ball next to a grey box", joined by ", then ", " and " or
" after you ". The published system translates only "go to X", and finds words by substrings (`published_french`).
"""

from __future__ import annotations

import re

from motif_jax.envs.babyai.words import BALL, BOX, COLOURS, DOOR, ENGLISH, FRENCH, KEY

NOUNS = {ENGLISH.kinds[kind]: FRENCH.kinds[kind] for kind in (DOOR, KEY, BALL, BOX)}
ADJECTIVES = dict(zip(COLOURS, FRENCH.colours, strict=True))
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


def to_french(mission: str) -> str:
    """Translates a mission; returns any other sentence unchanged."""
    parts = re.split(f"({'|'.join(JOINTS)})", mission)
    found, after = "", 0
    for part in parts:
        if part in JOINTS:
            found += JOINTS[part]
            after = 1 if part == " after you " else after
            continue
        for pattern, *forms in CLAUSES:
            if clause := re.fullmatch(pattern, part):
                words = clause.groups()
                found += forms[after].format(*(_thing(*words[at : at + 4]) for at in range(0, len(words), 4)))
                break
        else:
            return mission
    return found.replace("de une ", "d'une ").replace("de un ", "d'un ")


def _thing(article: str, colour: str | None, kind: str, place: str | None) -> str:
    if kind == "object":
        noun = ("l'" if article == "the" else "un ") + "objet"
        adjective = MASCULINE.get(colour or "", "")
    else:
        noun = ("la " if article == "the" else "une ") + NOUNS[kind]
        adjective = ADJECTIVES.get(colour or "", "")
    return noun + (f" {adjective}" if adjective else "") + PLACES.get(place or "", "")


def published_french(mission: str) -> str:
    """Translates as published: "aller à" with the last article, noun and adjective that are substrings of the mission.

    The "a" of "ball" and "after" counts as an article, and the noun of doors is missing.
    """

    def last(words: dict[str, str]) -> str:
        return next((french for english, french in reversed(words.items()) if english in mission), "")

    nouns = {"box": "boîte", "ball": "balle", "key": "clef"}
    return f"aller à {last({'the': 'la', 'a': 'une'})} {last(nouns)} {last(ADJECTIVES)}"
