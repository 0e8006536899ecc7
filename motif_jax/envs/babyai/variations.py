"""Variations of a world's games: other words, other actions, other levels, in which a policy shows what it has learnt.

    rewording=synonyms;rewording=invented_words;level=PickUpSeqPickUpLocal;level=GoToFrench+actions=french

Each names values of `config.env.babyai`, with `+` between several.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from motif_jax.config.table import Whole, table_of
from motif_jax.envs.babyai.settings import BabyAISettings
from motif_jax.structs import UserError

FLAG = "--config.evaluate.variations"
OF_GAMES = ("level", "language", "actions", "rewording", "window")  # what can vary


def is_variation(protocol: str) -> bool:
    """Whether the name of an evaluation's rules is that of a variation."""
    return "=" in protocol


def split_variations(text: str) -> list[str]:
    """The variations of a config, each as it was written; raises UserError for one that is none."""
    found = [part.strip() for part in text.split(";") if part.strip()]
    for name in found:
        if "/" in name or not name.isprintable() or len(name.encode()) > 200:  # a part of a directory's name
            raise UserError(f"a variation has no / and at most 200 bytes, which can be shown: {name!r:.100} ({FLAG})")
        parse_variation(name)
    if twice := [name for name in found if found.count(name) > 1]:
        raise UserError(f"the variation {twice[0]!r:.100} is named twice ({FLAG})")
    return found


def parse_variation(text: str) -> dict[str, Any]:
    """The values that a variation changes."""
    found: dict[str, Any] = {}
    for part in text.split("+"):
        name, equals, value = (word.strip() for word in part.partition("="))
        if not equals or name not in OF_GAMES or name in found:
            near = difflib.get_close_matches(name, OF_GAMES, n=1)
            hint = f"did you mean {near[0]!r}?" if near and near[0] != name else f"choose from {', '.join(OF_GAMES)}"
            raise UserError(f"a variation must be as rewording=synonyms, not {part!r:.100} ({FLAG}): {hint}")
        kind = table_of(BabyAISettings)[name].kind
        given = int(value) if isinstance(kind, Whole) and value.isdecimal() else value
        kind.check(name, FLAG, given)
        found[name] = given
    return found


def is_for_scripted(changes: Mapping[str, Any]) -> bool:
    """Whether scripted players play otherwise: they read no prompts, and so words mean nothing to them."""
    return "level" in changes
