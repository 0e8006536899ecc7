"""Variations of the world for testing generalisation: other words, other actions, other levels.

    rewording=synonyms;rewording=invented_words;level=PickUpSeqPickUpLocal;level=GoToFrench+actions=french

Each variation names values of `config.env.babyai`, separated by `+`.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from motif_jax.config.table import Whole, table_of
from motif_jax.envs.babyai.settings import BabyAISettings
from motif_jax.structs import UserError

FLAG = "--config.evaluate.variations"
OF_GAMES = ("level", "language", "actions", "rewording", "window")  # values that can vary


def is_variation(protocol: str) -> bool:
    """Whether an evaluation protocol is a variation."""
    return "=" in protocol


def split_variations(text: str) -> list[str]:
    """Splits the config value into variations, unparsed; raises UserError for an invalid one."""
    found = [part.strip() for part in text.split(";") if part.strip()]
    for name in found:
        if "/" in name or not name.isprintable() or len(name.encode()) > 200:  # it becomes a part of a directory's name
            raise UserError(f"a variation must be up to 200 printable bytes without /, not {name!r:.100} ({FLAG})")
        parse_variation(name)
    if twice := [name for name in found if found.count(name) > 1]:
        raise UserError(f"the variation {twice[0]!r:.100} is named twice ({FLAG})")
    return found


def parse_variation(text: str) -> dict[str, Any]:
    """Returns the config values that a variation changes."""
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
    """Whether a variation changes the games of scripted players, who do not read prompts."""
    return "level" in changes
