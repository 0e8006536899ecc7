"""The registry of reward sources: parses the config, finds the classes that it names.

    learnt,count:0.05,rnd:0.1,event_gold:0.2,my_package.my_module:MyBonus:0.2

The coefficient follows the name; that of `learnt` is `--config.policy.intrinsic_coefficient`. `event_NAME` is a reading
that the world makes of each step. Names are looked up here and nowhere else. To add a source, write its module, its
`SourceKind` here and a line in names.py; a plugin has its own in `sources`. Loads no JAX.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from motif_jax.config.table import Table, shown, tables_of
from motif_jax.envs.own_code import load_class
from motif_jax.envs.world import select_specs, suggest
from motif_jax.learner.acting import find_acting
from motif_jax.names import PROMPT_NETWORKS, SOURCES, import_named
from motif_jax.rewards.section import NamedSources, RewardsSection, SourcesConfig, check_online, needs_of_online
from motif_jax.structs import ArraySpec, Need, UserError

FLAG = "--config.policy.sources"
LEARNT, ONLINE = "learnt", "online"
READING, PREFIX = "motif_jax.rewards.reading:Reading", "event_"  # a world's own reading of each step
NO_READINGS = ("event_message_count", "event_drawn")  # numbers that describe the state rather than the step
MOST = 1e6  # limit for the absolute value of coefficients


@dataclass(frozen=True, kw_only=True)
class SourceKind:
    """The answers about reward sources that need a source's name alone, not its class. Loads no JAX.

    A kind `has_argument` if its sources are written NAME:ARGUMENT; `choose` names each, with `NAME_` first.
    """

    path: str  # module:Class
    title: str = ""  # on pages, after "trained on"; "": the source's name
    liked: str = ""  # on pages, after "An agent that likes"; "": the title
    return_name: str = ""  # of its return in metrics; "": NAME_return
    in_replays: bool = False  # replays show its rewards
    replay_word: str = ""  # for its rewards there; "": learnt
    of_captions: bool = True  # steps are rewarded for their captions, which `reference_alignment` moves
    has_argument: bool = False
    needs_coefficient: bool = True

    def choose(self, name: str, argument: str, flag: str) -> SourceChoice:
        """The source NAME or NAME:ARGUMENT; raises UserError, with the flag, for an argument that names none."""
        return SourceChoice(name, self.path)

    def title_of(self, name: str) -> str:
        """The title of the source with this name."""
        return self.title or name

    def liked_of(self, name: str) -> str:
        """What an agent likes that it rewards."""
        return self.liked or self.title_of(name).removeprefix(PREFIX).replace("_", " ")

    def check(self, choice: SourceChoice, config: SourcesConfig, world: Any) -> None:
        """Raises UserError for a source that cannot be used. Imports only classes of the user, and no JAX."""

    def needs(self, config: SourcesConfig) -> list[Need]:
        """The files of others that it reads, beside those that `check` has read."""
        return []

    def text(self, facts: Mapping[str, Any]) -> str:
        """What defines the rewards, as text for pages; "" if nothing does. `facts`: `RewardSource.about`, unchecked."""
        return ""


class Readings(SourceKind):
    """The world's own readings of each step."""

    def check(self, choice: SourceChoice, config: SourcesConfig, world: Any) -> None:
        """See `SourceKind`; of the world, only `specs` are read."""
        try:
            select_specs({name: world.specs[name] for name in readings(world.specs)}, [choice.name])
        except UserError as error:
            raise UserError(f"{error}; single numbers can be rewards ({FLAG})") from None


class OwnClass(SourceKind):
    """A user's class."""

    def check(self, choice: SourceChoice, config: SourcesConfig, world: Any) -> None:
        if not hasattr(load_class(choice.path, "reward source", FLAG), "make"):
            raise UserError(f"{shown(choice.path)} is not a subclass of RewardSource ({FLAG})")


class Distillation(SourceKind):
    """Random network distillation."""

    def check(self, choice: SourceChoice, config: SourcesConfig, world: Any) -> None:
        if getattr(config.policy, "network", "") in PROMPT_NETWORKS:
            raise UserError(
                f"the reward source 'rnd' cannot predict tokens, which the network reads ({FLAG}, .network)"
            )


class Judge(SourceKind):
    """A judge that is asked during training."""

    def check(self, choice: SourceChoice, config: SourcesConfig, world: Any) -> None:
        check_online(config)

    def needs(self, config: SourcesConfig) -> list[Need]:
        return needs_of_online(config)


LEARNT_KIND = SourceKind(
    path="motif_jax.rewards.learnt_source:LearntSource",
    title="the learnt reward",
    return_name="intrinsic_return",
    in_replays=True,
)
COUNT_KIND = SourceKind(path="motif_jax.rewards.count:CountBonus", title="the count bonus")
EXPLORE_KIND = SourceKind(path="motif_jax.rewards.explore:Explore", title="newly drawn squares")
RND_KIND = Distillation(path="motif_jax.rewards.rnd:RandomDistillation", title="random network distillation")
ONLINE_KIND = Judge(
    path="motif_jax.rewards.online.source:OnlineSource",
    title="a judge's answers",
    liked="what a judge likes",
    in_replays=True,
)
READINGS = Readings(path=READING)
SECTIONS = tables_of(RewardsSection)
VALUES: Table = {f"{name}.{key}": value for name in SOURCES for key, value in SECTIONS.get(name, {}).items()}


class SourceChoice(NamedTuple):
    """One entry of the list."""

    name: str  # for metrics, results and checkpoints: the key of SOURCES, or the name of a class
    path: str  # module:Class
    coefficient: float = 1.0
    argument: str = ""  # of a kind that has one

    @property
    def kind(self) -> SourceKind:
        return kind_of(self.name, self.path)

    def check(self, config: SourcesConfig, world: Any) -> None:
        """See `SourceKind.check`."""
        self.kind.check(self, config, world)

    def needs(self, config: SourcesConfig) -> list[Need]:
        return self.kind.needs(config)


@functools.cache
def kind_of(name: str, path: str = "") -> SourceKind:
    """The kind of a source by its name; `path`: its class, as a user's own may have the name of another source."""
    for key in SOURCES:
        if name == key or name.startswith(f"{key}_"):
            kind: SourceKind = import_named(SOURCES[key])
            if (name == key or kind.has_argument) and path in ("", kind.path):
                return kind
    return READINGS if path == READING or (name.startswith(PREFIX) and not path) else OwnClass(path=path)


def is_built_in(path: str) -> bool:
    """Whether a class is the program's own."""
    return path.startswith(f"{__name__.partition('.')[0]}.")


def known_class(name: str, saved: str) -> str:
    """The class of a checkpoint's source, wherever the program had it then; "" if it is no kind of source here."""
    path = kind_of(name).path
    return path if path == saved or is_built_in(saved) else ""


def readings(specs: Mapping[str, ArraySpec]) -> tuple[str, ...]:
    """The names of a world's readings: its observations `event_NAME` that are single numbers."""
    numbers = (name for name, spec in specs.items() if not spec.shape and name.startswith(PREFIX))
    return tuple(name for name in numbers if name not in NO_READINGS)


def parse_sources(text: str, learnt_coefficient: float) -> list[SourceChoice]:
    """Parses the list; leaves out `learnt` if its coefficient is 0, because a learnt reward is optional then."""
    choices: dict[str, SourceChoice] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        choice, number = parse_entry(part, FLAG)
        if choice.name == LEARNT:
            if number is not None:
                what = "the coefficient of the learnt reward is --config.policy.intrinsic_coefficient"
                raise UserError(f"{what}: write {LEARNT!r}, not {shown(part)} ({FLAG})")
            choice = choice._replace(coefficient=learnt_coefficient)
        elif number is None and choice.kind.needs_coefficient:
            needed = shown(f"{part}:0.1")
            raise UserError(f"the reward source {shown(part)} needs a coefficient, as in {needed} ({FLAG})")
        add_choice(choices, choice, text, FLAG)
    return [choice for choice in choices.values() if choice.name != LEARNT or choice.coefficient]


def add_choice(choices: dict[str, SourceChoice], choice: SourceChoice, text: str, flag: str) -> None:
    """Adds a choice by its name; raises UserError if there is another one with this name."""
    if choices.setdefault(choice.name, choice) is not choice:
        raise UserError(f"two rewards have the name {shown(choice.name)} in {shown(text)} ({flag})")


def parse_entry(
    text: str, flag: str, known: Mapping[str, SourceChoice] = MappingProxyType({})
) -> tuple[SourceChoice, float | None]:
    """Parses NAME or NAME:COEFFICIENT; also returns the coefficient, None without one. `known`: further names."""
    whole = ":".join(map(str.strip, text.split(":")))
    name, _, last = whole.rpartition(":")
    number = to_number(last)
    alone = name in known or (name in SOURCES and not kind_of(name).has_argument)
    needs_number = alone or (_is_reading(name, known) and not last.isidentifier())
    if not name or (math.isnan(number) and not needs_number):
        return _find_choice(whole, flag, known), None
    if not abs(number) <= MOST:
        needed = f"must be a number from {-MOST:g} to {MOST:g}, not {shown(last)}"
        raise UserError(f"the coefficient of the reward source {shown(name)} {needed} ({flag})")
    return _find_choice(name, flag, known)._replace(coefficient=number), number


def to_number(text: str) -> float:
    """The number; NaN where there is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def _is_reading(name: str, known: Mapping[str, SourceChoice]) -> bool:
    """Whether the name is a reading's, and not that of a module or a class; any is one if none are known."""
    word = name.removeprefix(PREFIX)
    return name != word and ":" not in name and "." not in name and (not known or word in known)


def _find_choice(name: str, flag: str, known: Mapping[str, SourceChoice]) -> SourceChoice:
    if name in known:
        return known[name]
    if _is_reading(name, known):
        return SourceChoice(PREFIX + name.removeprefix(PREFIX), READING)
    key, _, argument = name.partition(":")
    if key in SOURCES and (key == name or kind_of(key).has_argument):
        return kind_of(key).choose(key, argument, flag)
    if "." not in name and ":" not in name:
        names = [*known, *SOURCES]
        hint = suggest(name, names, f"choose from {', '.join(names)}, or a module:Class")
        raise UserError(f"unknown reward {shown(name)} ({flag}): {hint}")
    return SourceChoice(name.rpartition(":")[2], name)  # `load_class` refuses what is not module:Class


def without_folders(text: str) -> str:
    """A list of sources without the folders of their files, for what others read."""
    return re.sub(":[^,:]*/", ":", text)


def return_name(source: str) -> str:
    """The name of a source's return in metrics."""
    return kind_of(source).return_name or f"{source}_return"


def shown_source(names: Iterable[str]) -> str:
    """The source whose rewards replays show: the learnt or the online one, or the first of others; "" without them."""
    names = list(names)
    return next((name for name in (*SOURCES, *names) if name in names and kind_of(name).in_replays), "")


def chosen(config: NamedSources) -> Sequence[SourceChoice]:
    """The reward sources that the config names: those that what acts asks for, or those of the list."""
    section, acting = config.policy, find_acting(config)
    if acting and acting.sources is not None:
        return acting.sources
    return parse_sources(section.sources, section.intrinsic_coefficient)
