"""The options of a policy and its controller, parsed from the config. Loads no JAX.

    --config.policy.options="gold:1,down=stairs:20+game:0.1" --config.policy.controller="game:0.1"

With `policy.controller_chooses="mixtures"`, the controller mixes them: it chooses a coefficient for each (mixtures.py).

An option is a sum of rewards, `NAME:FACTOR` joined by `+`; a factor of 1 may be left out, and `name=` names the
option. A reward is a source of docs/rewards.md, a reading that the world makes of each step (its observation
`event_NAME`), or `game`, what the world itself pays.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import numpy as np

from motif_jax.config.table import shown
from motif_jax.envs.worlds import make_world
from motif_jax.rewards.mixtures import mixtures, parse_coefficients
from motif_jax.rewards.reading import readings
from motif_jax.rewards.registry import GAME, PREFIX, SourceChoice, parse_entry, parse_sources
from motif_jax.rewards.section import AUTO, MIXTURES, NamedSources
from motif_jax.structs import ArraySpec, UserError

OPTIONS_FLAG, CONTROLLER_FLAG = "--config.policy.options", "--config.policy.controller"
LENGTH_FLAG = "--config.policy.control.length"
CONTROLLER = "controller"  # the name that no option has
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
            needed = f"names of letters, digits and underscores, as in NAME={name}"
            raise UserError(f"options that are mixed need {needed}, not {shown(name)} ({OPTIONS_FLAG})")
    mixtures(coefficients, len(plan.names), section.control.sum_to_one)  # raises UserError if there are too many
    return plan._replace(coefficients=coefficients, sum_to_one=section.control.sum_to_one)


def parse_plan(options: str, controller: str, length: str, specs: Mapping[str, ArraySpec]) -> OptionPlan | None:
    """Parses the values of the config; None if there are no options."""
    if not options.strip():
        if controller.strip():
            raise UserError(f"a controller needs options to choose from ({OPTIONS_FLAG}, {CONTROLLER_FLAG})")
        return None
    known = (GAME, *(name.removeprefix(PREFIX) for name in readings(specs)))
    parsed = [_parse_option(part, known) for part in map(str.strip, options.split(",")) if part]
    if len(parsed) < 2:
        count = f"at least two options, not {len(parsed)}: {shown(options)}"
        raise UserError(f"a controller chooses among {count} ({OPTIONS_FLAG})")
    if len(parsed) > MOST_OPTIONS:
        raise UserError(f"at most {MOST_OPTIONS} options are possible, not {len(parsed)} ({OPTIONS_FLAG})")
    if not controller.strip():
        raise UserError(f"a controller needs a reward for its choices, such as {GAME}:0.1 ({CONTROLLER_FLAG})")
    paid = _parse_sum(controller, known, CONTROLLER_FLAG)
    names: list[str] = []
    for name, _ in parsed:
        copies = sum(other.rstrip("0123456789") == name for other in names)
        names.append(f"{name}{copies + 1}" if copies else name)
    if len(set(names)) < len(names):
        raise UserError(f"two options have the same name in {shown(options)} ({OPTIONS_FLAG})")
    rows = [rewards for _, rewards in parsed] + [paid]
    sources = {GAME: SourceChoice(GAME, "")}
    for choice in itertools.chain(*(row.values() for row in rows)):
        alone = choice._replace(coefficient=1.0)
        if sources.setdefault(choice.name, alone) != alone:
            raise UserError(f"two rewards have the same name, {choice.name!r}: {shown(options)} ({OPTIONS_FLAG})")
    factors = [[row[name].coefficient if name in row else 0.0 for name in sources] for row in rows]
    return OptionPlan(tuple(names), tuple(sources.values())[1:], np.array(factors, np.float32), _parse_length(length))


def chosen(config: NamedSources) -> list[SourceChoice]:
    """The reward sources that the config names: those that its options mix or, without options, those of the list."""
    section, plan = config.policy, find_plan(config)
    return list(plan.sources) if plan else parse_sources(section.sources, section.intrinsic_coefficient)


Sum = dict[str, SourceChoice]  # rewards by name; their coefficients are the factors


def _parse_option(part: str, known: Collection[str]) -> tuple[str, Sum]:
    name, equals, rewards = part.rpartition("=")
    parsed = _parse_sum(rewards, known, OPTIONS_FLAG)
    if name.strip() == CONTROLLER:
        raise UserError(f"an option needs another name than {CONTROLLER!r} ({OPTIONS_FLAG})")
    if equals and not name.strip().isidentifier():
        raise UserError(f"an option's name has letters, digits and underscores, not {shown(name)} ({OPTIONS_FLAG})")
    return name.strip() or "+".join(reward.removeprefix(PREFIX) for reward in parsed), parsed


def _parse_sum(text: str, known: Collection[str], flag: str) -> Sum:
    rewards: Sum = {}
    for part in text.split("+"):
        choice, _ = parse_entry(part, flag, known)
        if choice.name in rewards:
            raise UserError(f"the reward {shown(choice.name)} is named twice in {shown(text)} ({flag})")
        rewards[choice.name] = choice
    if not any(choice.coefficient for choice in rewards.values()):
        raise UserError(f"rewards that all have the factor 0 teach nothing: {shown(text)} ({flag})")
    return rewards


def _parse_length(length: str) -> tuple[int, ...]:
    if length == AUTO:
        return LENGTHS
    if not (length.isascii() and length.isdecimal() and len(length) < 10 and 1 <= int(length) <= MOST_STEPS):
        needed = f"{AUTO} or a number of game steps from 1 to {MOST_STEPS:,}"
        raise UserError(f"the length of options must be {needed}, not {shown(length)} ({LENGTH_FLAG})")
    return (int(length),)
