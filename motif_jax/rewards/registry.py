"""The registry of reward sources: parses the config, finds the classes that it names.

    learnt,count:0.05,rnd:0.1,event_gold:0.2,code:rewards/gold.reward:0.1,my_package.my_module:MyBonus:0.2

The coefficient follows the name; that of `learnt` is `--config.policy.intrinsic_coefficient`. `event_NAME` is a reading
that the world makes of each step. `code:FILE` is a program (code/), whose coefficient is 1 unless it is given;
`code:write_reward` is the best program that this stage has written in the same workdir. Names are looked up here and
nowhere else. To add a source, write its module, and a line in SOURCES with its values of the config. Loads no JAX.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from types import MappingProxyType
from typing import Any, NamedTuple

from motif_jax.config.table import Table, shown, tables_of
from motif_jax.envs.own_code import load_class
from motif_jax.envs.world import select_specs, suggest
from motif_jax.learner.acting import find_acting
from motif_jax.names import PROMPT_NETWORKS, import_named
from motif_jax.rewards.section import NamedSources, RewardsSection, SourcesConfig, needs_of_online
from motif_jax.structs import ArraySpec, Need, UserError

FLAG = "--config.policy.sources"
LEARNT, ONLINE = "learnt", "online"
READING, PREFIX = "motif_jax.rewards.reading:Reading", "event_"  # a world's own reading of each step
NO_READINGS = ("event_message_count", "event_drawn")  # numbers that describe the state rather than the step
CODE, CODE_PREFIX = "motif_jax.rewards.code.source:CodeReward", "code"  # a program in a file
SUFFIX = ".reward"  # of a program's file
WRITTEN, BEST = "write_reward", f"best{SUFFIX}"  # the stage that writes programs, its directory, and its best program
STEM = re.compile(r"[A-Za-z0-9_]{1,60}")
MOST = 1e6  # limit for the absolute value of coefficients


class BuiltIn(NamedTuple):
    """A built-in source."""

    path: str  # module:Class
    title: str  # on pages, after "trained on"
    return_name: str = ""  # of its return in metrics; "": NAME_return
    in_replays: bool = False  # replays show its rewards


SOURCES = {
    LEARNT: BuiltIn("motif_jax.rewards.learnt_source:LearntSource", "the learnt reward", "intrinsic_return", True),
    "count": BuiltIn("motif_jax.rewards.count:CountBonus", "the count bonus"),
    "explore": BuiltIn("motif_jax.rewards.explore:Explore", "newly drawn squares"),
    "rnd": BuiltIn("motif_jax.rewards.rnd:RandomDistillation", "random network distillation"),
    ONLINE: BuiltIn("motif_jax.rewards.online.source:OnlineSource", "a judge's answers", in_replays=True),
}
PATHS = {source.path for source in SOURCES.values()} | {READING, CODE}
CHECKS = {  # module:function of built-in sources that check more than the types of their values
    READING: "motif_jax.rewards.registry:check_reading",
    CODE: "motif_jax.rewards.code.source:check_choice",
    SOURCES[ONLINE].path: "motif_jax.rewards.section:check_choice",
}
SECTIONS = tables_of(RewardsSection)
VALUES: Table = {f"{name}.{key}": value for name in SOURCES for key, value in SECTIONS.get(name, {}).items()}


class SourceChoice(NamedTuple):
    """One entry of the list."""

    name: str  # for metrics, results and checkpoints: the key of SOURCES, or the name of a class
    path: str  # module:Class
    coefficient: float = 1.0
    file: str = ""  # of a program; WRITTEN: that of the workdir

    def check(self, config: SourcesConfig, world: Any) -> None:
        """Raises UserError for a source that cannot be used. Imports only classes of the user, and no JAX."""
        if self.path == SOURCES["rnd"].path and getattr(config.policy, "network", "") in PROMPT_NETWORKS:
            raise UserError(
                f"the reward source 'rnd' cannot predict tokens, which the network reads ({FLAG}, .network)"
            )
        if self.path in CHECKS:
            import_named(CHECKS[self.path])(self, config, world)
        elif self.path not in PATHS and not hasattr(load_class(self.path, "reward source", FLAG), "make"):
            raise UserError(f"{shown(self.path)} is not a subclass of RewardSource ({FLAG})")

    def needs(self, config: SourcesConfig) -> list[Need]:
        """The files of others that it reads, beside those that `check` has read."""
        return needs_of_online(config) if self.path == SOURCES[ONLINE].path else []


def check_reading(choice: SourceChoice, config: object, world: Any) -> None:
    """See `SourceChoice.check`; of the world, only `specs` are read."""
    try:
        select_specs({name: world.specs[name] for name in readings(world.specs)}, [choice.name])
    except UserError as error:
        raise UserError(f"{error}; single numbers can be rewards ({FLAG})") from None


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
        elif number is None and choice.path != CODE:
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
    needs_number = name in (*SOURCES, *known) or (_is_reading(name, known) and not last.isidentifier())
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
    if name in SOURCES:
        return SourceChoice(name, SOURCES[name].path)
    if name.startswith(f"{CODE_PREFIX}:"):  # its file is not read yet
        file = name.partition(":")[2]
        stem = "written" if file == WRITTEN else PurePath(file).name.removesuffix(SUFFIX)
        if file != WRITTEN and not (file.endswith(SUFFIX) and STEM.fullmatch(stem)):
            form = f"a program is a file NAME{SUFFIX} (up to 60 letters, digits, underscores), or {WRITTEN}"
            raise UserError(f"{form}, not {shown(file)} ({flag})")
        return SourceChoice(f"{CODE_PREFIX}_{stem}", CODE, file=file)
    if "." not in name and ":" not in name:
        names = [*known, *SOURCES]
        hint = suggest(name, names, f"choose from {', '.join(names)}, or a module:Class")
        raise UserError(f"unknown reward {shown(name)} ({flag}): {hint}")
    return SourceChoice(name.rpartition(":")[2], name)  # `load_class` refuses what is not module:Class


def without_folders(text: str) -> str:
    """A list of sources without the folders of programs, for what others read."""
    return re.sub(rf"\b{CODE_PREFIX}:[^,:]*/", f"{CODE_PREFIX}:", text)


def program_title(name: str) -> str:
    """The title of a program, "the program gold", from its name as a source; "" for other sources."""
    start, _, stem = name.partition("_")
    if name == f"{CODE_PREFIX}_written":
        return "the written program"
    return f"the program {stem}" if start == CODE_PREFIX and STEM.fullmatch(stem) else ""


def return_name(source: str) -> str:
    """The name of a source's return in metrics."""
    return (SOURCES[source].return_name if source in SOURCES else "") or f"{source}_return"


def shown_source(names: Iterable[str]) -> str:
    """The source whose rewards replays show: the learnt or the online one, or the first program; "" without them."""
    names = list(names)
    built_in = [name for name, source in SOURCES.items() if source.in_replays and name in names]
    return next(iter([*built_in, *filter(program_title, names)]), "")


def chosen(config: NamedSources) -> Sequence[SourceChoice]:
    """The reward sources that the config names: those that what acts asks for, or those of the list."""
    section, acting = config.policy, find_acting(config)
    if acting and acting.sources is not None:
        return acting.sources
    return parse_sources(section.sources, section.intrinsic_coefficient)
