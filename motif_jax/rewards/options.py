"""The options of a policy and its controller, parsed from the config. Loads no JAX.

    --config.policy.options="gold:1,down=stairs:20+game:0.1" --config.policy.controller="game:0.1"

With `policy.controller_chooses="mixtures"`, the controller mixes them: it chooses a coefficient for each (mixtures.py).

An option is a sum of rewards, `NAME:FACTOR` joined by `+`; a factor of 1 may be left out, and `name=` names the
option. A reward is a source of docs/rewards.md, a reading that the world makes of each step (its observation
`event_NAME`), or `game`, what the world itself pays.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from motif_jax.config.table import shown
from motif_jax.envs.world import suggest
from motif_jax.envs.worlds import make_world
from motif_jax.rewards.mixtures import mixtures, parse_coefficients
from motif_jax.rewards.reading import readings
from motif_jax.rewards.registry import (
    CODE_PREFIX,
    MOST,
    PREFIX,
    READING,
    SOURCES,
    SourceChoice,
    parse_code,
    parse_own,
    parse_sources,
)
from motif_jax.rewards.section import AUTO, MIXTURES, NamedSources, RewardsSection
from motif_jax.structs import ArraySpec, UserError

OPTIONS_FLAG, CONTROLLER_FLAG = "--config.policy.options", "--config.policy.controller"
LENGTH_FLAG = "--config.policy.control.length"
GAME, CONTROLLER = "game", "controller"  # the world's own reward; the name that no option has
LENGTHS = (1, 2, 4, 8, 16, 32, 64, 128)  # game steps among which the controller chooses
MOST_STEPS = 100_000  # of an option of fixed length
MOST_OPTIONS = 64


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
        return len(self.coefficients) ** len(self.names) if self.coefficients else len(self.names)

    def record(self) -> dict[str, Any]:
        mixture = {"coefficients": [*self.coefficients], "sum_to_one": self.sum_to_one} if self.coefficients else {}
        return {"names": [*self.names], "lengths": [*self.lengths]} | mixture


def find_plan(config: NamedSources) -> OptionPlan | None:
    """The plan of a config; None if it has no options."""
    section = config.policy
    specs = make_world(config.env).specs if section.options.strip() else {}
    plan = parse_plan(section.options, section.controller, section.control.length, specs)
    mixes, coefficients = section.controller_chooses == MIXTURES, parse_coefficients(section.control.coefficients)
    if plan is None and mixes:
        raise UserError(f"mixtures need options to mix ({OPTIONS_FLAG}, --config.policy.controller_chooses)")
    if plan is None or not mixes:
        return plan
    for name in plan.names:
        if not name.isidentifier():
            raise UserError(
                f"options that are mixed need names of letters, digits and underscores, as in NAME={name}, not "
                f"{shown(name)} ({OPTIONS_FLAG})"
            )
    mixtures(coefficients, len(plan.names), section.control.sum_to_one)  # raises UserError if there are too many
    return plan._replace(coefficients=coefficients, sum_to_one=section.control.sum_to_one)


def parse_plan(options: str, controller: str, length: str, specs: Mapping[str, ArraySpec]) -> OptionPlan | None:
    """Parses the values of the config; None if there are no options."""
    if not options.strip():
        if controller.strip():
            raise UserError(f"a controller needs options to choose from ({OPTIONS_FLAG}, {CONTROLLER_FLAG})")
        return None
    known_readings = readings(specs)
    parsed = [_parse_option(part, known_readings) for part in map(str.strip, options.split(",")) if part]
    if len(parsed) < 2:
        raise UserError(
            f"a controller chooses among at least two options, not {len(parsed)}: {shown(options)} ({OPTIONS_FLAG})"
        )
    if len(parsed) > MOST_OPTIONS:
        raise UserError(f"at most {MOST_OPTIONS} options are possible, not {len(parsed)} ({OPTIONS_FLAG})")
    if not controller.strip():
        raise UserError(f"a controller needs a reward for its choices, such as {GAME}:0.1 ({CONTROLLER_FLAG})")
    paid = _parse_sum(controller, known_readings, CONTROLLER_FLAG)
    names: list[str] = []
    for name, _ in parsed:
        copies = sum(other.rstrip("0123456789") == name for other in names)
        names.append(f"{name}{copies + 1}" if copies else name)
    if len(set(names)) < len(names):
        raise UserError(f"two options have the same name in {shown(options)} ({OPTIONS_FLAG})")
    rows = [rewards for _, rewards in parsed] + [paid]
    sources: dict[str, SourceChoice] = {}
    for choice, _ in itertools.chain(*(row.values() for row in rows)):
        if choice and sources.setdefault(choice.name, choice) != choice:
            raise UserError(f"two rewards have the same name, {choice.name!r}: {shown(options)} ({OPTIONS_FLAG})")
    columns = (GAME, *sources)
    factors = [[row[name][1] if name in row else 0.0 for name in columns] for row in rows]
    return OptionPlan(tuple(names), tuple(sources.values()), np.array(factors, np.float32), _parse_length(length))


def chosen_from(section: RewardsSection, plan: OptionPlan | None) -> list[SourceChoice]:
    """The reward sources of `config.policy`: those that options mix or, without options, those that it lists."""
    return list(plan.sources) if plan else parse_sources(section.sources, section.intrinsic_coefficient)


Sum = dict[str, tuple[SourceChoice | None, float]]  # rewards by name, and their factors; None: GAME


def _parse_option(part: str, known_readings: tuple[str, ...]) -> tuple[str, Sum]:
    name, equals, rewards = part.rpartition("=")
    parsed = _parse_sum(rewards, known_readings, OPTIONS_FLAG)
    if name.strip() == CONTROLLER:
        raise UserError(f"an option needs another name than {CONTROLLER!r} ({OPTIONS_FLAG})")
    if equals and not name.strip().isidentifier():
        raise UserError(
            f"the name of an option has letters, digits and underscores, not {shown(name)} ({OPTIONS_FLAG})"
        )
    return name.strip() or "+".join(reward.removeprefix(PREFIX) for reward in parsed), parsed


def _parse_sum(text: str, known_readings: tuple[str, ...], flag: str) -> Sum:
    rewards: Sum = {}
    for part in text.split("+"):
        *named, last = map(str.strip, part.split(":"))
        try:
            factor = float(last)
        except ValueError:
            has_factor = len(named) == 1 and (named[0] in (GAME, *SOURCES) or PREFIX + named[0] in known_readings)
            named, factor = (named, math.nan) if has_factor else ([*named, last], 1.0)
        name = ":".join(named)
        if not abs(factor) <= MOST:
            raise UserError(
                f"the factor of a reward must be a number from {-MOST:g} to {MOST:g}, not {shown(last)} ({flag})"
            )
        choice = _choice(name, known_readings, flag)
        key = choice.name if choice else GAME
        if key in rewards:
            raise UserError(f"the reward {shown(key)} is named twice in {shown(text)} ({flag})")
        rewards[key] = choice, factor
    if not any(factor for _, factor in rewards.values()):
        raise UserError(f"rewards that all have the factor 0 teach nothing: {shown(text)} ({flag})")
    return rewards


def _choice(name: str, known_readings: tuple[str, ...], flag: str) -> SourceChoice | None:
    """The source with this name; None for GAME."""
    if name == GAME:
        return None
    if (reading := PREFIX + name.removeprefix(PREFIX)) in known_readings:
        return SourceChoice(reading, READING, 1.0)
    if name in SOURCES:
        return SourceChoice(name, SOURCES[name].path, 1.0)
    if name.startswith(f"{CODE_PREFIX}:"):
        return parse_code(name, flag)
    if "." in name or ":" in name:
        return parse_own(name, flag)
    names = [GAME, *(reading.removeprefix(PREFIX) for reading in known_readings), *SOURCES]
    hint = suggest(name, names, f"choose from {', '.join(names)}, or a module:Class")
    raise UserError(f"unknown reward {shown(name)} ({flag}): {hint}")


def _parse_length(length: str) -> tuple[int, ...]:
    if length == AUTO:
        return LENGTHS
    if not (length.isascii() and length.isdecimal() and len(length) < 10 and 1 <= int(length) <= MOST_STEPS):
        raise UserError(
            f"the length of options must be {AUTO} or a number of game steps from 1 to {MOST_STEPS:,}, not "
            f"{shown(length)} ({LENGTH_FLAG})"
        )
    return (int(length),)
