"""The registry of reward sources, and the options that mix them: parses the config, finds the classes that it names.

    learnt,count:0.05,rnd:0.1,event_gold:0.2,my_package.my_module:MyBonus:0.2

The coefficient follows the name; that of `learnt` is `--config.policy.intrinsic_coefficient`. `event_NAME` is a reading
that the world makes of each step. Names are looked up here and nowhere else. To add a source, write its module, its
`SourceKind` here and a line in names.py; a plugin has its own in `sources`. Loads no JAX.

    --config.policy.options="gold:1,down=stairs:20+game:0.1" --config.policy.controller="game:0.1"

An option is a sum of rewards, `NAME:FACTOR` joined by `+`; a factor of 1 may be left out, and `name=` names the
option. A reward is a source, a reading, or `game`, what the world itself pays. If the controller chooses mixtures, it
chooses a coefficient for each option. A mixture is named by them: `gold=0.5+stairs=1`; options that are missing have 0.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from motif_jax.config.table import Table, shown, tables_of
from motif_jax.envs.own_code import load_class
from motif_jax.envs.world import select_specs, suggest
from motif_jax.envs.worlds import make_world
from motif_jax.names import PROMPT_NETWORKS, SOURCES, import_named
from motif_jax.rewards.section import (
    AUTO,
    MIXTURES,
    NamedSources,
    RewardsSection,
    SourcesConfig,
    check_online,
    needs_of_online,
)
from motif_jax.structs import ArraySpec, Need, UserError

FLAG = "--config.policy.sources"
LEARNT, ONLINE = "learnt", "online"
GAME = "game"  # the world's own reward, in options
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
        _put(choices, choice, text, FLAG)
    return [choice for choice in choices.values() if choice.name != LEARNT or choice.coefficient]


def _put(choices: dict[str, SourceChoice], choice: SourceChoice, text: str, flag: str) -> None:
    """Adds a choice by its name; raises UserError if there is another one with this name."""
    if choices.setdefault(choice.name, choice) is not choice:
        raise UserError(f"two rewards have the name {shown(choice.name)} in {shown(text)} ({flag})")


def parse_entry(text: str, flag: str, known: Collection[str] = ()) -> tuple[SourceChoice, float | None]:
    """Parses NAME or NAME:COEFFICIENT; also returns the coefficient, None without one.

    `known`: further names: GAME, whose choice has no class, and the world's readings without their prefix.
    """
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


def _is_reading(name: str, known: Collection[str]) -> bool:
    """Whether the name is a reading's, and not that of a module or a class; any is one if none are known."""
    word = name.removeprefix(PREFIX)
    return name in known or (name != word and ":" not in name and "." not in name and (not known or word in known))


def _find_choice(name: str, flag: str, known: Collection[str]) -> SourceChoice:
    if name in known and name == GAME:
        return SourceChoice(GAME, "")
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


# ---- options

OPTIONS_FLAG, CONTROLLER_FLAG = "--config.policy.options", "--config.policy.controller"
LENGTH_FLAG = "--config.policy.control.length"
CONTROLLER = "controller"  # the name that no option has
LENGTHS = (1, 2, 4, 8, 16, 32, 64, 128)  # game steps among which the controller chooses


class OptionPlan(NamedTuple):
    """K options and the N behaviours among which the controller chooses: the options themselves, or their mixtures.

    Behaviours have the numbers 0 to N - 1, the controller has the number N.
    """

    names: tuple[str, ...]  # of the options
    sources: tuple[SourceChoice, ...]  # all rewards that are mixed, except GAME; their coefficients are 1
    factors: np.ndarray  # of the rewards (GAME first, then `sources`) for options and controller. [K + 1, S] float32
    lengths: tuple[int, ...]  # in game steps, among which the controller chooses
    coefficients: tuple[float, ...] = ()  # of an option's coefficient in mixtures; (): there are no mixtures
    sum_to_one: bool = True  # coefficients of a mixture

    @property
    def weights(self) -> np.ndarray:
        """The weights of the options in each behaviour. [N, K] float32"""
        if not self.coefficients:
            return np.eye(len(self.names), dtype=np.float32)
        return mixtures(self.coefficients, len(self.names), self.sum_to_one)

    @property
    def reward_factors(self) -> np.ndarray:
        """Factors of the rewards for all behaviours and the controller. [N + 1, S] float32"""
        return np.concatenate([self.weights @ self.factors[:-1], self.factors[-1:]])

    @property
    def controller(self) -> int:
        return len(self.weights)

    def record(self) -> dict[str, Any]:
        mixture = {"coefficients": [*self.coefficients], "sum_to_one": self.sum_to_one} if self.coefficients else {}
        return {"names": [*self.names], "lengths": [*self.lengths]} | mixture


def find_plan(config: NamedSources) -> OptionPlan | None:
    """The plan of a config; None if it has no options."""
    section, mixes = config.policy, config.policy.controller_chooses == MIXTURES
    if not section.options.strip():
        if section.controller.strip() or mixes:
            flags = f"{OPTIONS_FLAG}, {CONTROLLER_FLAG}, --config.policy.controller_chooses"
            raise UserError(f"a controller needs options to choose from, and mixtures options to mix ({flags})")
        return None
    plan = parse_plan(section.options, section.controller, section.control.length, make_world(config.env).specs)
    if not mixes:
        return plan
    if unnamed := [name for name in plan.names if not name.isidentifier()]:
        needed = f"names of letters, digits and underscores, as in NAME={unnamed[0]}"
        raise UserError(f"options that are mixed need {needed} ({OPTIONS_FLAG})")
    coefficients = tuple(map(to_number, section.control.coefficients.split(",")))
    if len(set(coefficients)) < max(len(coefficients), 2) or not all(0 <= number <= MOST for number in coefficients):
        needed = f"at least two different coefficients, each from 0 to {MOST:g}"
        raise UserError(f"mixtures need {needed}, not {shown(section.control.coefficients)} ({MIXTURES_FLAG})")
    mixtures(coefficients, len(plan.names), section.control.sum_to_one)  # raises UserError if there are too many
    return plan._replace(coefficients=coefficients, sum_to_one=section.control.sum_to_one)


def parse_plan(options: str, controller: str, length: str, specs: Mapping[str, ArraySpec]) -> OptionPlan:
    """Parses the values of the config."""
    known = (GAME, *(name.removeprefix(PREFIX) for name in readings(specs)))
    names: list[str] = []
    rows: list[Sum] = []
    for part in filter(None, map(str.strip, options.split(","))):
        name, equals, rewards = (word.strip() for word in part.rpartition("="))
        rows.append(_parse_sum(rewards, known, OPTIONS_FLAG))
        if equals and (name == CONTROLLER or not name.isidentifier()):
            needed = f"has letters, digits and underscores, and is not {CONTROLLER!r}"
            raise UserError(f"the name of an option {needed}: {shown(part)} ({OPTIONS_FLAG})")
        name = name or "+".join(reward.removeprefix(PREFIX) for reward in rows[-1])
        copies = sum(other.rstrip("0123456789") == name for other in names)
        names.append(f"{name}{copies + 1}" if copies else name)
    if len(set(names)) < max(len(names), 2):
        count = f"at least two options, all of different names, not {len(names)}: {shown(options)}"
        raise UserError(f"a controller chooses among {count} ({OPTIONS_FLAG})")
    rows.append(_parse_sum(controller, known, CONTROLLER_FLAG))
    sources = {GAME: SourceChoice(GAME, "")}
    for choice in itertools.chain(*(row.values() for row in rows)):
        alone = choice._replace(coefficient=1.0)
        if alone not in sources.values():
            _put(sources, alone, options, OPTIONS_FLAG)
    if length != AUTO and not re.fullmatch("[1-9][0-9]{0,4}", length):
        needed = f"{AUTO} or a number of game steps from 1 to 99,999"
        raise UserError(f"the length of options must be {needed}, not {shown(length)} ({LENGTH_FLAG})")
    factors = [[row[name].coefficient if name in row else 0.0 for name in sources] for row in rows]
    lengths = LENGTHS if length == AUTO else (int(length),)
    return OptionPlan(tuple(names), tuple(sources.values())[1:], np.array(factors, np.float32), lengths)


def chosen(config: NamedSources) -> list[SourceChoice]:
    """The reward sources that the config names: those that its options mix or, without options, those of the list."""
    section, plan = config.policy, find_plan(config)
    return list(plan.sources) if plan else parse_sources(section.sources, section.intrinsic_coefficient)


Sum = dict[str, SourceChoice]  # rewards by name; their coefficients are the factors


def _parse_sum(text: str, known: Collection[str], flag: str) -> Sum:
    rewards: Sum = {}
    for part in text.split("+"):
        _put(rewards, parse_entry(part, flag, known)[0], text, flag)
    if not any(choice.coefficient for choice in rewards.values()):
        raise UserError(f"rewards that all have the factor 0 teach nothing: {shown(text)} ({flag})")
    return rewards


# ---- mixtures

Weights = tuple[float, ...]  # of a mixture, by option
MIXTURES_FLAG = "--config.policy.control.coefficients"
MOST_MIXTURES = 1024


@functools.lru_cache(16)
def mixtures(coefficients: tuple[float, ...], options: int, sum_to_one: bool) -> np.ndarray:
    """All mixtures of K options with these coefficients; the last option's changes fastest. [N, K]"""
    if (count := len(coefficients) ** options) > MOST_MIXTURES:
        of = f"{len(coefficients)} coefficients for each of {options} options"
        raise UserError(f"{of} are {count:,} mixtures, more than {MOST_MIXTURES:,} ({MIXTURES_FLAG})")
    rows = itertools.product(coefficients, repeat=options)
    weights = np.array([_scaled(row, sum_to_one) for row in rows], np.float32)
    weights.flags.writeable = False
    return weights


def _scaled(weights: Weights, sum_to_one: bool) -> Weights:
    """The weights, divided by their sum if wanted; equal weights if all are 0."""
    if not any(weights):
        return (1 / len(weights),) * len(weights)
    return tuple(weight / sum(weights) for weight in weights) if sum_to_one else weights


def behaviours_of(plan: Mapping[str, Any]) -> list[str]:
    """The names of all behaviours in a checkpoint's plan (`OptionPlan.record`): its options, or its mixtures."""
    names = [*plan.get("names", ())]
    if "coefficients" not in plan:
        return names
    return [named(names, weights) for weights in mixtures(tuple(plan["coefficients"]), len(names), plan["sum_to_one"])]


def named(names: Sequence[str], weights: Sequence[float] | np.ndarray) -> str:
    """The name of a mixture."""
    return "+".join(f"{name}={weight:.3g}" for name, weight in zip(names, weights, strict=True) if weight)


def find_behaviour(text: str, plan: Mapping[str, Any]) -> int | Weights:
    """The number of the option, or the weights of the mixture, that `text` names.

    `text`: in a mixture, a comma may stand for `+`. `plan`: of a checkpoint; empty without options.
    """
    names = [*plan.get("names", ())]
    known = f"the options {', '.join(names)}" if names else "no options"
    if "coefficients" not in plan:
        if text not in names:
            raise UserError(f"the policy has {known}{', and does not mix them' * ('=' in text)}, not {text!r}")
        return names.index(text)
    weights: dict[str, float] = {}
    for part in text.replace(",", "+").split("+"):
        name, equals, number = map(str.strip, part.partition("="))
        if name not in names:
            hint = suggest(name, names, "choose from these")
            raise UserError(f"the policy mixes {known}, not {name!r}: {hint}")
        if name in weights:
            raise UserError(f"the option {name!r} is named twice in {text!r}")
        weights[name] = to_number(number) if equals else 1.0
    if not all(0 <= weight <= MOST for weight in weights.values()) or not any(weights.values()):
        raise UserError(f"the coefficients of a mixture must be from 0 to {MOST:g}, and not all 0: {text!r}")
    return _scaled(tuple(weights.get(name, 0.0) for name in names), plan["sum_to_one"])
