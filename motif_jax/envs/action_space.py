"""Actions that are several choices, or several numbers, instead of a single choice.

A world with such actions has the attribute `action_space`, and `action = action_space.spec`. Recorded actions are what
the game takes: numbers within their bounds, or the numbers of choices from 0 on.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from motif_jax.structs import ArraySpec

DECIMALS = 2  # of numbers in replays


class ActionSpace(NamedTuple):
    """Either `sizes`, or `low` and `high`."""

    sizes: tuple[int, ...] = ()  # number of values of each choice
    low: tuple[float, ...] = ()  # bounds of each number
    high: tuple[float, ...] = ()

    @property
    def spec(self) -> ArraySpec:
        return ArraySpec((len(self.sizes),), "int32") if self.sizes else ArraySpec((len(self.low),), "float32")

    @property
    def outputs(self) -> int:
        """The number of a network's outputs for an action: logits, or mean and scale of each number."""
        return sum(self.sizes) if self.sizes else 2 * len(self.low)

    def record(self) -> dict[str, list[float]]:
        """Returns keyword arguments for `ActionSpace` in JSON, for the metadata of checkpoints."""
        return {name: list(values) for name, values in self._asdict().items() if values}

    def draw(self, chance: float) -> list[Any]:
        """Returns a uniformly distributed action, for a number in [0, 1)."""
        draw = random.Random(chance).random
        if self.sizes:
            return [int(draw() * size) for size in self.sizes]
        return [float(np.float32(low + (high - low) * draw())) for low, high in zip(self.low, self.high, strict=True)]


def space_of(world: Any) -> ActionSpace | None:
    """Returns a world's space of actions; None if its actions are single choices or texts."""
    return getattr(world, "action_space", None)


def space_from(model: Mapping[str, Any]) -> ActionSpace | None:
    """Returns the space in a model's metadata, if any; raises ValueError if the model lacks its outputs."""
    if "action_space" not in model:
        return None
    space = ActionSpace(**{name: tuple(values) for name, values in model["action_space"].items()})
    if len(space.low) != len(space.high) or bool(space.sizes) == bool(space.low):
        raise ValueError("action_space has either sizes, or equally many low and high bounds")
    if space.outputs != model["num_actions"]:
        raise ValueError(f"num_actions must be {space.outputs}, the outputs of its action_space")
    return space


def spell(action: np.ndarray) -> str:
    """Formats an action as text, such as "2, 0" or "-0.50, 1.00"."""
    digits = "d" if np.issubdtype(action.dtype, np.integer) else f".{DECIMALS}f"
    return ", ".join(f"{number:{digits}}" for number in action.tolist())
