"""Protocols: which games an evaluation plays.

    task            the games of config.env (default)
    NAME=VALUE      the same with other values of config.env.babyai: a variation, to test generalisation
    NAME            of a plugin

Variations are separated by `;`, and the values of one by `+`:

    rewording=synonyms;mission=shuffled;level=PickUpSeqPickUpLocal;level=GoToFrench+actions=french

Controls are sets of variations that answer a question. `grounding` asks whether a policy uses what its prompt says:
missions that name other things (a control of this program), and GLAM's own, with other words, in French, and with pairs
of colour and noun that MixedTrainLocal holds out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from motif_jax.config.table import Whole, table_of
from motif_jax.envs.babyai.level_settings import SECTION, BabyAISettings
from motif_jax.envs.world import suggest
from motif_jax.envs.worlds import title
from motif_jax.names import PROTOCOLS, import_named
from motif_jax.structs import UserError

FLAG = "--config.evaluate.protocol"
TASK = "task"
VARIATIONS_FLAG = "--config.evaluate.variations"
OF_GAMES = ("level", "language", "actions", "rewording", "mission", "window")  # values that can vary


class EvaluationProtocol:
    """The games of an evaluation, and how its results say so. These are the workdir's own games, by their own rules."""

    @property
    def rules(self) -> str:
        """Its rules in words, after a number of games; "" for the workdir's own."""
        return ""

    @property
    def suffix(self) -> str:
        """The end of the names of players, and so of the directories of results."""
        return ""

    def about(self) -> dict[str, str]:
        """What the metadata of results says of it."""
        return {}

    def check(self, env: Mapping[str, Any]) -> None:
        """Raises UserError if the game of the section `env` cannot be played by these rules."""

    def games(self, env: Mapping[str, Any]) -> dict[str, Any]:
        """The section `env`, or a record of it, with these rules."""
        return dict(env)

    def task(self, env: Mapping[str, Any]) -> str:
        """What is played, in a word."""
        return title(env)


@dataclass(frozen=True)
class ChangedGames(EvaluationProtocol):
    """Games with other values of config.env."""

    name: str  # in the config
    words: str  # of `rules`: "by the rules of ...", "with ..."
    changed: Mapping[str, Any]  # values of the section

    @property
    def rules(self) -> str:
        return self.words

    @property
    def suffix(self) -> str:
        return f"-{self.name}"

    def about(self) -> dict[str, str]:
        return {"protocol": self.name}

    def games(self, env: Mapping[str, Any]) -> dict[str, Any]:
        nested = {name: {**env.get(name, {}), **one} for name, one in self.changed.items() if isinstance(one, Mapping)}
        return {**env, **self.changed, **nested}

    def task(self, env: Mapping[str, Any]) -> str:
        return self.name


OWN_GAMES = EvaluationProtocol()


def find_protocol(name: str) -> EvaluationProtocol:
    """The protocol, or variation, with this name in the config."""
    if is_variation(name):
        return ChangedGames(name, f"with {name}", {SECTION: parse_variation(name)})
    found: EvaluationProtocol = import_named(PROTOCOLS[name])
    return found


CONTROLS = {  # protocols by their name in the table
    "": {},
    "grounding": {
        "shuffled missions": "mission=shuffled",
        "renamed things": "rewording=invented_words",
        "reworded missions": "rewording=synonyms",
        "held-out pairs": "level=MixedTestLocal",
        "French": "language=french+actions=french",
    },
}


def is_variation(protocol: str) -> bool:
    """Whether an evaluation protocol is a variation."""
    return "=" in protocol


def split_variations(text: str) -> list[str]:
    """Splits the config value into variations, unparsed; raises UserError for an invalid one."""
    variations = [*dict.fromkeys(part.strip() for part in text.split(";") if part.strip())]
    for name in variations:
        if "/" in name or not name.isprintable() or len(name.encode()) > 200:  # it becomes a part of a directory's name
            what = "a variation must be up to 200 printable bytes without /"
            raise UserError(f"{what}, not {name!r:.100} ({VARIATIONS_FLAG})")
        parse_variation(name)
    return variations


def parse_variation(text: str) -> dict[str, Any]:
    """Returns the config values that a variation changes."""
    values: dict[str, Any] = {}
    for part in text.split("+"):
        name, equals, value = (word.strip() for word in part.partition("="))
        if not equals or name not in OF_GAMES or name in values:
            hint = suggest(name, [other for other in OF_GAMES if other != name])
            raise UserError(f"a variation must be as rewording=synonyms, not {part!r:.100} ({VARIATIONS_FLAG}): {hint}")
        kind = table_of(BabyAISettings)[name].kind
        given = int(value) if isinstance(kind, Whole) and value.isdecimal() else value
        kind.check(name, VARIATIONS_FLAG, given)
        values[name] = given
    return values
