"""Shortest paths on a level, with sets of squares as the bits of one integer.

Square (x, y) is bit 80 * y + x. Column 79 is always empty, so that a step off one side of the map does not arrive at
the other. A step of a breadth-first search in all directions is then a handful of shifts.
"""

from __future__ import annotations

import numpy as np

STRIDE = 80
# Action (index in `envs.nethack.keys.ACTIONS`) -> change of the bit's position.
STEPS = {1: -STRIDE, 2: 1, 3: STRIDE, 4: -1, 5: 1 - STRIDE, 6: 1 + STRIDE, 7: STRIDE - 1, 8: -STRIDE - 1}
DIAGONAL = (5, 6, 7, 8)


def squares(mask: np.ndarray) -> int:
    """The set of true squares. [21, 79] bool -> bits."""
    padded = np.zeros((21, STRIDE), bool)
    padded[:, :79] = mask
    return int.from_bytes(np.packbits(padded, bitorder="little").tobytes(), "little")


def shift(bits: int, by: int) -> int:
    """Moves all squares by the same step."""
    return bits << by if by > 0 else bits >> -by


def beside(bits: int) -> int:
    """The given squares and all their neighbours, including diagonal ones."""
    row = bits | bits << 1 | bits >> 1
    return row | row << STRIDE | row >> STRIDE


def path_to(start: int, goals: int, walkable: int, doors: int) -> list[int]:
    """The actions along a shortest path from `start` to any of `goals`; [] if `goals` cannot be reached.

    Args:
      start: one square.
      goals: squares to reach; only walkable ones can be reached.
      walkable: squares that can be entered.
      doors: squares that cannot be entered or left diagonally.
    """
    layers = [start]
    seen = start
    while not layers[-1] & goals:
        edge = layers[-1]
        free = edge & ~doors
        straight = edge << 1 | edge >> 1 | edge << STRIDE | edge >> STRIDE
        diagonal = free << STRIDE + 1 | free >> STRIDE + 1 | free << STRIDE - 1 | free >> STRIDE - 1
        reached = (straight | diagonal & ~doors) & walkable & ~seen
        if not reached:
            return []
        seen |= reached
        layers.append(reached)
    at = layers[-1] & goals
    at &= -at
    actions = []
    for layer in reversed(layers[:-1]):
        for action, step in STEPS.items():
            before = shift(at, -step) & layer
            if before and not (action in DIAGONAL and (at | before) & doors):
                actions.append(action)
                at = before
                break
    return actions[::-1]
