"""Protocols: the rules of the games in evaluation, for comparison with published results.

    task            the games of config.env (default)
    NAME=VALUE      the same with other values of config.env.babyai: a variation, to test generalisation
    challenge, balrog_nethack, balrog_babyai    docs/motif.md and docs/babyai.md

In NetHack the policy keeps its actions and its handling of questions and pages; a step is one of its actions, while
these protocols count each key. All protocols have the same figures, including BALROG's progression.

Variations are separated by `;`, and the values of one by `+`:

    rewording=synonyms;mission=shuffled;level=PickUpSeqPickUpLocal;level=GoToFrench+actions=french

Controls are sets of variations that answer a question. `grounding` asks whether a policy uses what its prompt says:
missions that name other things (a control of this program), and GLAM's own, with other words, in French, and with pairs
of colour and noun that MixedTrainLocal holds out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from motif_jax.config.table import Whole, table_of
from motif_jax.envs.babyai.level_settings import SECTION, BabyAISettings
from motif_jax.envs.nethack.tasks import ANY_CHARACTER
from motif_jax.envs.world import suggest
from motif_jax.envs.worlds import make_world, title
from motif_jax.structs import UserError

FLAG = "--config.evaluate.protocol"
TASK = "task"
VARIATIONS_FLAG = "--config.evaluate.variations"
OF_GAMES = ("level", "language", "actions", "rewording", "mission", "window")  # values that can vary
_CHALLENGE = {
    "task": "score", "character": ANY_CHARACTER, "max_episode_steps": 1_000_000, "no_progress_steps": 10_000,
    "penalty_mode": "constant", "penalty_step": 0.0,
}  # fmt: skip
CHANGED: dict[str, dict[str, Any]] = {  # changed values of config.env, by protocol
    TASK: {},
    "challenge": _CHALLENGE,
    "balrog_nethack": _CHALLENGE | {"max_episode_steps": 100_000, "no_progress_steps": 150},
    "balrog_babyai": {SECTION: {"level": "MixedTrainLocalN0"}},
}

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

TITLES = {  # in sentences
    "challenge": "the NetHack Challenge", "balrog_nethack": "BALROG's NetHack", "balrog_babyai": "BALROG's BabyAI",
}  # fmt: skip


def check_protocol(env: Mapping[str, Any], protocol: str) -> None:
    """Raises UserError if the protocol does not belong to the game that the section `env` names."""
    if CHANGED.get(protocol) and protocol not in getattr(make_world(env), "protocols", ()):
        game = "BabyAI" if SECTION in CHANGED[protocol] else "NetHack"
        raise UserError(f"the protocol {protocol!r} is for {game}, not for {title(env)!r} ({FLAG}, --config.env)")


def by_protocol(env: Mapping[str, Any], protocol: str) -> dict[str, Any]:
    """The section `env`, or a record of it, with the protocol's games."""
    changed = {SECTION: parse_variation(protocol)} if is_variation(protocol) else CHANGED.get(protocol, {})
    nested = {name: {**env.get(name, {}), **value} for name, value in changed.items() if isinstance(value, dict)}
    return {**env, **changed, **nested}


def suffix(protocol: str) -> str:
    """Returns the suffix of result directories' names."""
    return "" if protocol == TASK else f"-{protocol}"


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
