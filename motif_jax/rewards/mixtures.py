"""Mixtures of rewards among which a controller chooses, one coefficient per reward, and mixtures that a person sets.

A mixture is named by its coefficients, `gold=0.5+stairs=1`; rewards that are missing have the coefficient 0.
"""

from __future__ import annotations

import difflib
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from motif_jax.structs import UserError

Weights = tuple[float, ...]  # of a mixture, by reward
LARGEST = 1000.0  # coefficient


def mixtures(levels: Sequence[float], rewards: int, sum_to_one: bool) -> tuple[Weights, ...]:
    """All mixtures of so many rewards, each coefficient one of `levels`; the last reward's changes fastest."""
    return tuple(_scaled(found, sum_to_one) for found in itertools.product(levels, repeat=rewards))


def _scaled(weights: Weights, sum_to_one: bool) -> Weights:
    """The weights, of sum 1 if wanted; equal parts if all are 0."""
    if not any(weights):
        return (1 / len(weights),) * len(weights)
    return tuple(weight / sum(weights) for weight in weights) if sum_to_one else weights


def behaviours_of(plan: Mapping[str, Any]) -> list[str]:
    """The names of all behaviours in a checkpoint's plan (`Plan.record`): its options, or its mixtures."""
    names = [*plan.get("names", ())]
    if "levels" not in plan:
        return names
    return [named(names, weights) for weights in mixtures(plan["levels"], len(names), plan["sum_to_one"])]


def named(names: Sequence[str], weights: Weights) -> str:
    """The name of a mixture."""
    return "+".join(f"{name}={weight:.3g}" for name, weight in zip(names, weights, strict=True) if weight)


def find_behaviour(text: str, plan: Mapping[str, Any]) -> int | Weights:
    """The number of the option, or the weights of the mixture, that `text` names.

    Args:
      text: the name of an option, or a mixture of the plan's rewards.
      plan: of a checkpoint; empty for a policy without options. Only a plan with mixtures has them.
    """
    names = [*plan.get("names", ())]
    if not names:
        raise UserError("the policy has no options")
    if text in names and "levels" not in plan:
        return names.index(text)
    if "levels" not in plan:
        raise UserError(f"the policy has the options {', '.join(names)}, not {text!r}")
    found = dict.fromkeys(names, 0.0)
    seen = set()
    for part in map(str.strip, text.split("+")):
        name, equals, number = map(str.strip, part.partition("="))
        if name not in found:
            near = difflib.get_close_matches(name, names, n=1)
            hint = f": did you mean {near[0]!r}?" if near else ""
            raise UserError(f"the policy mixes the rewards {', '.join(names)}, not {name!r}{hint}")
        if name in seen:
            raise UserError(f"the reward {name!r} is named twice in {text!r}")
        seen.add(name)
        try:
            found[name] = float(number) if equals else 1.0
        except ValueError:
            found[name] = math.nan
        if not 0 <= found[name] <= LARGEST:
            raise UserError(f"a coefficient must be a number from 0 to {LARGEST:g}, not {number!r} ({text!r})")
    if not any(found.values()):
        raise UserError(f"a mixture needs a coefficient above 0: {text!r}")
    return _scaled(tuple(found.values()), plan["sum_to_one"])
