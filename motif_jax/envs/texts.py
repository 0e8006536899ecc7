"""The texts about a game: a description, its goals, prompts and rules.

A game may have a directory of TOML files, each of them optional: `goals.toml` (per goal its name and the instruction
for a language model), `default.toml` and `reworded.toml` (prompts), and `lexicon.toml` (rules). The prompts in
`general/` replace missing ones; they contain `{game}` for the description. The goals there hold for every game, unless
its own `goals.toml` overrides them by name.

A rule (docs/own-game.md) is a pattern, a regular expression that is searched in each line of a caption, and its worth
to each goal; `progress` is the worth to the goals that ask for progress of any kind (`GENERAL`). A rule with an empty
worth only counts events.
"""

from __future__ import annotations

import functools
import hashlib
import math
import re
import tomllib
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from motif_jax.config.table import shown
from motif_jax.console import suggest
from motif_jax.envs.worlds import make_world
from motif_jax.structs import UserError, legible
from motif_jax.system.foreign import read_text

GENERAL_TEXTS = Path(__file__).parent / "general"
FLAG = "--config.env.world"  # names the game
LEXICON_FLAG = "--config.annotate.lexicon"
PROGRESS = "progress"
GENERAL = ("defaultgoal", "zeroknowledge")  # goals that ask for progress of any kind
MOST_WORTH = 1e9
LEAST = 1e-5  # distance of a preference's probability from 1/2, so that no temperature makes it a tie
AIMED_AT = 2  # least worth to a particular goal by which a rule counts as an aim of that goal


class Rule(NamedTuple):
    """A pattern, and the worth of the captions that match it."""

    name: str
    pattern: str
    worth: Mapping[str, float]  # by goal or PROGRESS

    def worth_to(self, goal: str) -> float:
        return float(self.worth.get(PROGRESS if goal in GENERAL else goal, 0))


class Rules(NamedTuple):
    """The rules of a file, in its order."""

    rules: tuple[Rule, ...]
    version: str  # a hash of names, patterns and worths, so that labels of different rules are not mixed

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(rule.name for rule in self.rules)

    @property
    def aims(self) -> set[str]:
        """Names of the rules with a worth of at least AIMED_AT to a particular goal."""
        return {
            rule.name
            for rule in self.rules
            if max((worth for goal, worth in rule.worth.items() if goal != PROGRESS), default=0) >= AIMED_AT
        }

    def happenings(self) -> Callable[[str], list[str]]:
        """A function from a message to the names of all rules that it matches; remembers every message."""
        patterns = [(rule.name, re.compile(rule.pattern)) for rule in self.rules]
        return functools.cache(lambda message: [name for name, pattern in patterns if pattern.search(message)])

    def worth_to(self, goal: str) -> Callable[[str], tuple[float, tuple[str, ...]]]:
        """A function from a caption to its worth to one goal, and the names of the rules that match it.

        The worth is the sum over all rules that match a line; one that matches two lines counts, and is named, twice.
        """
        valued = [(rule.name, re.compile(rule.pattern), rule.worth_to(goal)) for rule in self.rules]
        valued = [(name, pattern, value) for name, pattern, value in valued if value]

        def worth(caption: str) -> tuple[float, tuple[str, ...]]:
            lines = caption.split("\n")
            matched = [(name, value) for line in lines for name, pattern, value in valued if pattern.search(line)]
            return float(sum(value for _, value in matched)), tuple(name for name, _ in matched)

        return worth


NO_RULES = Rules((), "")


def preference(difference: float, temperature: float | None) -> float:
    """P(second is better) = 1 / (1 + exp(-difference / temperature)).

    `difference`: the worth of the second caption minus that of the first. If `temperature` is None, the result is 0,
    1/2 or 1.
    """
    if not difference:
        return 0.5
    odds = 0.0 if temperature is None else math.exp(-abs(difference) / temperature)  # of the worse caption
    worse = min(odds / (1 + odds), 0.5 - LEAST)
    return 1 - worse if difference > 0 else worse


def read_rules(path: Path, goals: Collection[str], flag: str) -> Rules:
    """Reads and checks a file of rules."""
    file = f"lexicon {str(path)!r}"
    content = read_toml(path, file, flag)
    valued = [PROGRESS, *(goal for goal in goals if goal not in GENERAL)]
    if content.keys() != {"rule"} or not isinstance(content["rule"], list) or not content["rule"]:
        raise UserError(f"{file} has {shown([*content])}, but must have rules alone: write them as [[rule]] ({flag})")
    rules: dict[str, Rule] = {}
    for number, table in enumerate(content["rule"], 1):
        wrong = TypeError, AttributeError, re.error, RecursionError, OverflowError
        with legible(f"rule {number} of {file}", flag, *wrong):
            rule = Rule(**table)
            re.compile(rule.pattern)
            if unknown := [goal for goal in rule.worth if goal not in valued]:
                raise ValueError(f"unknown goal {unknown[0]!r}: {suggest(unknown[0], valued)}")
            own = isinstance(rule.name, str) and rule.name not in rules
            if not own or not rule.pattern or not all(abs(value) <= MOST_WORTH for value in rule.worth.values()):
                raise ValueError("its name is not a text of its own, its pattern is empty, or a worth is not finite")
            rules[rule.name] = rule
    return Rules(tuple(rules.values()), _version(rules.values(), valued))


def read_toml(path: Path, name: str, flag: str) -> dict[str, Any]:
    """Reads a TOML file; `name` and `flag` are for errors."""
    with legible(name, flag, RecursionError):
        return tomllib.loads(read_text(path))


def _version(rules: Collection[Rule], valued: Collection[str]) -> str:
    """A hash of the rules. Its format must not change, or earlier annotations could not be continued."""
    written = []
    for rule in rules:
        worths = ", ".join(f"{goal}={rule.worth.get(goal, 0.0)!r}" for goal in valued)
        written.append(f"Rule(name={rule.name!r}, pattern={rule.pattern!r}, {worths})")
    return hashlib.sha256(f"({', '.join(written)})".encode()).hexdigest()[:16]


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
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,40}", name) or name == PROGRESS or not isinstance(text, str):
            wanted = f"a text, named by letters, digits and dashes, and not {PROGRESS!r}"
            raise UserError(f"{shown(name)} in {str(path)!r} must be {wanted} ({FLAG})")
    return goals
