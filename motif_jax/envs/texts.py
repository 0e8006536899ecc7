"""The texts about a game: a description, its goals, prompts and rules.

A game may have a directory of TOML files, each of them optional: `goals.toml` (per goal its name and the instruction
for a language model), `default.toml` and `reworded.toml` (prompts), and `lexicon.toml` (rules). The prompts in
`general/` replace missing ones; they contain `{game}` for the description. The goals there hold for every game, unless
its own `goals.toml` overrides them by name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from motif_jax.config.table import shown
from motif_jax.envs.rules import NO_RULES, PROGRESS, Rules, read_rules, read_toml
from motif_jax.envs.worlds import make_world
from motif_jax.structs import UserError

GENERAL_TEXTS = Path(__file__).parent / "general"
FLAG = "--config.env.world"  # names the game
LEXICON_FLAG = "--config.annotate.lexicon"


class Texts(NamedTuple):
    """The texts about one game."""

    about: str  # a description in a few words, which can end a sentence
    goals: dict[str, str]  # instructions for a model, by the goal's name
    folder: Path | None  # the game's TOML files
    lexicon: str  # the user's file of rules; "": the game's own

    def prompt(self, version: str) -> Path:
        return _file_of(self.folder, f"{version}.toml") or GENERAL_TEXTS / f"{version}.toml"

    def rules(self) -> Rules:
        if self.lexicon:
            return read_rules(Path(self.lexicon).expanduser(), self.goals, LEXICON_FLAG)
        file = _file_of(self.folder, "lexicon.toml")
        return read_rules(file, self.goals, FLAG) if file else NO_RULES


def _file_of(folder: Path | None, name: str) -> Path | None:
    return folder / name if folder and (folder / name).exists() else None


def read_texts(about: str, folder: Path | None, lexicon: str = "") -> Texts:
    """Reads the goals of a game; the arguments are the fields of `Texts`."""
    if folder is not None and not folder.is_dir():
        raise UserError(f"there is no directory {str(folder)!r}, where the game has its texts ({FLAG})")
    goals = _read_goals(GENERAL_TEXTS / "goals.toml")
    if file := _file_of(folder, "goals.toml"):
        goals |= _read_goals(file)
    return Texts(about, goals, folder, lexicon)


def texts_of(env: Mapping[str, Any], lexicon: str) -> Texts:
    """Reads the texts about the game of the config's section `env`; `lexicon`: `config.annotate.lexicon`."""
    world = make_world(env)
    return read_texts(world.about, world.texts, lexicon)


def _read_goals(path: Path) -> dict[str, str]:
    goals = read_toml(path, f"goals file {str(path)!r}", FLAG)
    for name, text in goals.items():
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,40}", name) or name == PROGRESS:
            raise UserError(
                f"{shown(name)} in {str(path)!r} cannot name a goal: choose letters, digits and dashes, and not "
                f"{PROGRESS!r} ({FLAG})"
            )
        if not isinstance(text, str):
            raise UserError(f"the goal {name!r} in {str(path)!r} must be text, not {shown(text)} ({FLAG})")
    return goals
