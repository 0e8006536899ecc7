"""Mixtures of options, among which a controller chooses, and mixtures that a person sets. Loads no JAX.

A mixture has a coefficient for each option, and is named by them: `gold=0.5+stairs=1`; options that are missing have 0.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from motif_jax.config.table import shown
from motif_jax.envs.world import suggest
from motif_jax.structs import UserError

Weights = tuple[float, ...]  # of a mixture, by option
FLAG = "--config.policy.control.coefficients"
LARGEST, SMALLEST = 1000.0, 1e-6  # coefficients, beside 0; divided by their sum, they are more than 0 in float32
LIMITS = f"a number from {SMALLEST:g} to {LARGEST:g}"
MOST = 1024  # mixtures


@functools.lru_cache(16)
def mixtures(coefficients: tuple[float, ...], options: int, sum_to_one: bool) -> np.ndarray:
    """All mixtures of K options with these coefficients; the last option's changes fastest. [N, K]"""
    if (count := len(coefficients) ** options) > MOST:
        of = f"{len(coefficients)} coefficients for each of {options} options"
        raise UserError(f"{of} are {count:,} mixtures, more than {MOST:,} ({FLAG})")
    rows = itertools.product(coefficients, repeat=options)
    weights = np.array([_scaled(row, sum_to_one) for row in rows], np.float32)
    by_name: dict[str, np.ndarray] = {}
    for row in weights:
        name = named([f"option {number + 1}" for number in range(options)], row)
        if not np.allclose(by_name.setdefault(name, row), row, rtol=1e-5, atol=0):
            raise UserError(f"two mixtures have the same name, {name}: choose coefficients that differ more ({FLAG})")
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
            raise UserError(f"a coefficient must be 0 or {LIMITS}, not {shown(part)} ({FLAG})")
    if len(set(coefficients)) < max(len(coefficients), 2):
        raise UserError(f"mixtures need at least two coefficients, all different: {shown(text)} ({FLAG})")
    return coefficients


def _is_coefficient(number: float) -> bool:
    return number == 0 or SMALLEST <= number <= LARGEST


def to_number(text: str) -> float:
    """The number; NaN where there is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


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
