"""The options of a policy and its controller, parsed from the config. Loads no JAX.

    --config.policy.options="gold:1,down=stairs:20+game:0.1" --config.policy.controller="game:0.1"

With `policy.controller_chooses="mixtures"`, the controller mixes them: it chooses a coefficient for each. A
mixture is named by them: `gold=0.5+stairs=1`; options that are missing have 0.

An option is a sum of rewards, `NAME:FACTOR` joined by `+`; a factor of 1 may be left out, and `name=` names the
option. A reward is a source of docs/rewards.md, a reading that the world makes of each step (its observation
`event_NAME`), or `game`, what the world itself pays.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from motif_jax.config.table import shown
from motif_jax.envs.world import suggest
from motif_jax.envs.worlds import make_world
from motif_jax.rewards.reading import readings
from motif_jax.rewards.registry import GAME, PREFIX, SourceChoice, parse_entry, parse_sources, to_number
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
        return len(self.weights)

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
    names: list[str] = []
    rows: list[Sum] = []
    for part in filter(None, map(str.strip, options.split(","))):
        name, equals, rewards = (word.strip() for word in part.rpartition("="))
        rows.append(_parse_sum(rewards, known, OPTIONS_FLAG))
        if name == CONTROLLER:
            raise UserError(f"an option needs another name than {CONTROLLER!r} ({OPTIONS_FLAG})")
        if equals and not name.isidentifier():
            raise UserError(f"an option's name has letters, digits and underscores, not {shown(name)} ({OPTIONS_FLAG})")
        name = name or "+".join(reward.removeprefix(PREFIX) for reward in rows[-1])
        copies = sum(other.rstrip("0123456789") == name for other in names)
        names.append(f"{name}{copies + 1}" if copies else name)
    if len(rows) < 2:
        count = f"at least two options, not {len(rows)}: {shown(options)}"
        raise UserError(f"a controller chooses among {count} ({OPTIONS_FLAG})")
    if len(rows) > MOST_OPTIONS:
        raise UserError(f"at most {MOST_OPTIONS} options are possible, not {len(rows)} ({OPTIONS_FLAG})")
    if not controller.strip():
        raise UserError(f"a controller needs a reward for its choices, such as {GAME}:0.1 ({CONTROLLER_FLAG})")
    rows.append(_parse_sum(controller, known, CONTROLLER_FLAG))
    if len(set(names)) < len(names):
        raise UserError(f"two options have the same name in {shown(options)} ({OPTIONS_FLAG})")
    sources = {GAME: SourceChoice(GAME, "")}
    for choice in itertools.chain(*(row.values() for row in rows)):
        alone = choice._replace(coefficient=1.0)
        if sources.setdefault(choice.name, alone) != alone:
            raise UserError(f"two rewards have the same name, {choice.name!r}: {shown(options)} ({OPTIONS_FLAG})")
    lengths: tuple[int, ...] = LENGTHS
    if length != AUTO:
        if not (length.isascii() and length.isdecimal() and len(length) < 10 and 1 <= int(length) <= MOST_STEPS):
            needed = f"{AUTO} or a number of game steps from 1 to {MOST_STEPS:,}"
            raise UserError(f"the length of options must be {needed}, not {shown(length)} ({LENGTH_FLAG})")
        lengths = (int(length),)
    factors = [[row[name].coefficient if name in row else 0.0 for name in sources] for row in rows]
    return OptionPlan(tuple(names), tuple(sources.values())[1:], np.array(factors, np.float32), lengths)


def chosen(config: NamedSources) -> list[SourceChoice]:
    """The reward sources that the config names: those that its options mix or, without options, those of the list."""
    section, plan = config.policy, find_plan(config)
    return list(plan.sources) if plan else parse_sources(section.sources, section.intrinsic_coefficient)


Sum = dict[str, SourceChoice]  # rewards by name; their coefficients are the factors


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


# ---- mixtures

Weights = tuple[float, ...]  # of a mixture, by option
MIXTURES_FLAG = "--config.policy.control.coefficients"
LARGEST, SMALLEST = 1000.0, 1e-6  # coefficients, beside 0; divided by their sum, they are more than 0 in float32
LIMITS = f"a number from {SMALLEST:g} to {LARGEST:g}"
MOST_MIXTURES = 1024


@functools.lru_cache(16)
def mixtures(coefficients: tuple[float, ...], options: int, sum_to_one: bool) -> np.ndarray:
    """All mixtures of K options with these coefficients; the last option's changes fastest. [N, K]"""
    if (count := len(coefficients) ** options) > MOST_MIXTURES:
        of = f"{len(coefficients)} coefficients for each of {options} options"
        raise UserError(f"{of} are {count:,} mixtures, more than {MOST_MIXTURES:,} ({MIXTURES_FLAG})")
    rows = itertools.product(coefficients, repeat=options)
    weights = np.array([_scaled(row, sum_to_one) for row in rows], np.float32)
    by_name: dict[str, np.ndarray] = {}
    for row in weights:
        name = named([f"option {number + 1}" for number in range(options)], row)
        if not np.allclose(by_name.setdefault(name, row), row, rtol=1e-5, atol=0):
            raise UserError(
                f"two mixtures have the same name, {name}: choose coefficients that differ more ({MIXTURES_FLAG})"
            )
    weights.flags.writeable = False
    return weights


def _scaled(weights: Weights, sum_to_one: bool) -> Weights:
    """The weights, divided by their sum if wanted; equal weights if all are 0."""
    if not any(weights):
        return (1 / len(weights),) * len(weights)
    return tuple(weight / sum(weights) for weight in weights) if sum_to_one else weights


def parse_coefficients(text: str) -> tuple[float, ...]:
    """Parses `config.policy.control.coefficients`."""
    coefficients = tuple(map(to_number, text.split(",")))
    for part, level in zip(text.split(","), coefficients, strict=True):
        if not _is_coefficient(level):
            raise UserError(f"a coefficient must be 0 or {LIMITS}, not {shown(part)} ({MIXTURES_FLAG})")
    if len(set(coefficients)) < max(len(coefficients), 2):
        raise UserError(f"mixtures need at least two coefficients, all different: {shown(text)} ({MIXTURES_FLAG})")
    return coefficients


def _is_coefficient(number: float) -> bool:
    return number == 0 or SMALLEST <= number <= LARGEST


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
    if not names:
        raise UserError("the policy has no options")
    if "coefficients" not in plan:
        if text not in names:
            why = ", and does not mix them" if "=" in text else ""
            raise UserError(f"the policy has the options {', '.join(names)}{why}, not {text!r}")
        return names.index(text)
    weights: dict[str, float] = {}
    for part in text.replace(",", "+").split("+"):
        name, equals, number = map(str.strip, part.partition("="))
        if name not in names:
            hint = suggest(name, names, "choose from these")
            raise UserError(f"the policy mixes the options {', '.join(names)}, not {name!r}: {hint}")
        if name in weights:
            raise UserError(f"the option {name!r} is named twice in {text!r}")
        weights[name] = to_number(number) if equals else 1.0
        if not _is_coefficient(weights[name]):
            raise UserError(f"a coefficient must be 0 or {LIMITS}, not {number!r} ({text!r})")
    if not any(weights.values()):
        raise UserError(f"a mixture needs a coefficient above 0: {text!r}")
    return _scaled(tuple(weights.get(name, 0.0) for name in names), plan["sum_to_one"])
