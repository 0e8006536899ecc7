"""What each option did in some batches: its share of the time, the length of its turns, and what they earned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from motif_jax.rewards.options import GAME, OptionPlan


class TurnFigures(NamedTuple):
    """Sums over the steps of a batch, for K options; a mixture counts for each option by its coefficient."""

    steps: np.ndarray  # of the games while each option was in charge. [K]
    turns: np.ndarray  # that each option began. [K]
    earned: np.ndarray  # by each option's turns (rows), in the reward of each option and of the controller. [K, K + 1]


def turn_figures(plan: OptionPlan, arrays: Mapping[str, np.ndarray], rewards: Mapping[str, np.ndarray]) -> TurnFigures:
    """The figures of a batch.

    Args:
      arrays: of the rollouts: `charge`, `option` and `reward`. [T, B] each
      rewards: of each source, without coefficient. [T, B] each
    """
    charge, count = arrays["charge"], plan.controller
    names = (GAME, *(choice.name for choice in plan.sources))
    paid = (arrays["reward"] if name == GAME else rewards[name] for name in names)
    by = [np.bincount(charge.ravel(), one.ravel(), minlength=count + 1)[:count] for one in paid]
    steps = np.bincount(charge.ravel(), minlength=count + 1)[:count]
    begun = np.bincount(arrays["option"][charge == plan.controller], minlength=count)
    weights = plan.weights.T
    return TurnFigures(weights @ steps, weights @ begun, weights @ np.stack(by, -1) @ plan.factors.T)


def add_up(figures: list[TurnFigures], names: tuple[str, ...]) -> dict[str, float]:
    """A row of metrics.jsonl: shares, mean lengths and earnings per step, by option."""
    if not figures:
        return {}
    steps, turns, earned = (np.sum(parts, 0) for parts in zip(*figures, strict=True))
    row: dict[str, float] = {}
    for number, name in enumerate(names):
        row[f"option/{name}/share"] = float(steps[number] / (steps.sum() or 1))
        row[f"option/{name}/length"] = float(steps[number] / (turns[number] or 1))
        for other, what in enumerate((*names, "controller")):
            row[f"option/{name}/earns/{what}"] = float(earned[number, other] / (steps[number] or 1))
    return row
