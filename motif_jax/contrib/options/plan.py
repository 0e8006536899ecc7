"""Parses the options of the config: the sums of rewards that they are paid, and their mixtures. Loads no JAX.

    --config.options.rewards="gold:1,down=stairs:20+game:0.1" --config.options.controller="game:0.1"

An option is a sum of rewards, `NAME:FACTOR` joined by `+`; a factor of 1 may be left out, and `name=` names the
option. A reward is a source, a reading, or `game`, what the world itself pays. If the controller chooses mixtures, it
chooses a coefficient for each option. A mixture is named by them: `gold=0.5+stairs=1`; options that are missing have 0.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from motif_jax.config.table import shown
from motif_jax.contrib.options.sections import AUTO, MIXTURES, OPTIONS, OptionsSection
from motif_jax.envs.world import suggest
from motif_jax.envs.worlds import make_world
from motif_jax.rewards.registry import MOST, PREFIX, READING, SourceChoice, add_choice, parse_entry, readings, to_number
from motif_jax.rewards.section import NamedSources
from motif_jax.structs import ArraySpec, UserError

OPTIONS_FLAG, CONTROLLER_FLAG = "--config.options.rewards", "--config.options.controller"
LENGTH_FLAG, MIXTURES_FLAG = "--config.options.length", "--config.options.coefficients"
GAME = "game"  # the world's own reward
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
    section: OptionsSection = config.plugins[OPTIONS]
    mixes = section.controller_chooses == MIXTURES
    if not section.rewards.strip():
        if section.controller.strip() or mixes:
            flags = f"{OPTIONS_FLAG}, {CONTROLLER_FLAG}, --config.options.controller_chooses"
            raise UserError(f"a controller needs options to choose from, and mixtures options to mix ({flags})")
        return None
    plan = parse_plan(section.rewards, section.controller, section.length, make_world(config.env).specs)
    if not mixes:
        return plan
    if unnamed := [name for name in plan.names if not name.isidentifier()]:
        needed = f"names of letters, digits and underscores, as in NAME={unnamed[0]}"
        raise UserError(f"options that are mixed need {needed} ({OPTIONS_FLAG})")
    coefficients = tuple(map(to_number, section.coefficients.split(",")))
    if len(set(coefficients)) < max(len(coefficients), 2) or not all(0 <= number <= MOST for number in coefficients):
        needed = f"at least two different coefficients, each from 0 to {MOST:g}"
        raise UserError(f"mixtures need {needed}, not {shown(section.coefficients)} ({MIXTURES_FLAG})")
    mixtures(coefficients, len(plan.names), section.sum_to_one)  # raises UserError if there are too many
    return plan._replace(coefficients=coefficients, sum_to_one=section.sum_to_one)


def parse_plan(options: str, controller: str, length: str, specs: Mapping[str, ArraySpec]) -> OptionPlan:
    """Parses the values of the config."""
    known = {GAME: SourceChoice(GAME, "")}
    known |= {name.removeprefix(PREFIX): SourceChoice(name, READING) for name in readings(specs)}
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
            add_choice(sources, alone, options, OPTIONS_FLAG)
    if length != AUTO and not re.fullmatch("[1-9][0-9]{0,4}", length):
        needed = f"{AUTO} or a number of game steps from 1 to 99,999"
        raise UserError(f"the length of options must be {needed}, not {shown(length)} ({LENGTH_FLAG})")
    factors = [[row[name].coefficient if name in row else 0.0 for name in sources] for row in rows]
    lengths = LENGTHS if length == AUTO else (int(length),)
    return OptionPlan(tuple(names), tuple(sources.values())[1:], np.array(factors, np.float32), lengths)


Sum = dict[str, SourceChoice]  # rewards by name; their coefficients are the factors


def _parse_sum(text: str, known: Mapping[str, SourceChoice], flag: str) -> Sum:
    rewards: Sum = {}
    for part in text.split("+"):
        add_choice(rewards, parse_entry(part, flag, known)[0], text, flag)
    if not any(choice.coefficient for choice in rewards.values()):
        raise UserError(f"rewards that all have the factor 0 teach nothing: {shown(text)} ({flag})")
    return rewards


# ---- mixtures

Weights = tuple[float, ...]  # of a mixture, by option
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
