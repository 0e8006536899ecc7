"""Reads and writes rows of rollouts for several groups of games.

A loop is fastest for few groups; from MANY on, one NumPy call per array takes half the time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

MANY = 8  # groups
Places = list[tuple[int, int]] | tuple[np.ndarray, np.ndarray]  # slot and step of each row: pairs, or two arrays


def find_places(pairs: Sequence[tuple[int, int]]) -> Places:
    """Converts (slot, step) pairs to the form in which `RolloutRows` is fastest."""
    if len(pairs) < MANY:
        return list(pairs)
    slots, steps = np.array(pairs).T
    return slots, steps


class RolloutRows:
    """The rollouts of a pool, row by row; a row is one step of one group."""

    def __init__(self, rollouts: Mapping[str, np.ndarray]):
        """Takes arrays of [S, rows, E, ...]; `write` changes them."""
        self._arrays = dict(rollouts)
        self._flat = {  # [S * rows, E, ...]
            key: array.reshape(array.shape[0] * array.shape[1], *array.shape[2:]) for key, array in rollouts.items()
        }

    def read(self, key: str, places: Places, room: int = 0) -> np.ndarray:
        """Concatenates rows of one array. [max(R * E, room), ...], padded with zeros

        A single row is not copied: it changes when its group writes the next rollout into this slot.
        """
        array = self._arrays[key]
        size, shape = array.shape[2], array.shape[3:]
        if isinstance(places, list):
            if len(places) == 1 and room <= size:
                return array[places[0]]
            count = len(places) * size
            rows = np.empty((max(room, count), *shape), array.dtype)
            for number, place in enumerate(places):
                rows[number * size : (number + 1) * size] = array[place]
        else:
            slots, steps = places
            count = len(slots) * size
            rows = np.empty((max(room, count), *shape), array.dtype)
            out = rows[:count].reshape(len(slots), size, *shape)
            # With the mode "raise", NumPy would buffer the result, to leave `out` unchanged after an error.
            np.take(self._flat[key], slots * array.shape[1] + steps, 0, out=out, mode="clip")
        rows[count:] = 0
        return rows

    def write(self, key: str, places: Places, values: np.ndarray) -> None:
        """Writes `values`, [R * E, ...], to rows of one array."""
        array = self._arrays[key]
        size = array.shape[2]
        if isinstance(places, list):
            for number, place in enumerate(places):
                array[place] = values[number * size : (number + 1) * size]
        else:
            slots, steps = places
            self._flat[key][slots * array.shape[1] + steps] = values.reshape(len(slots), *array.shape[2:])

    def write_bytes(self, key: str, places: Places, start: np.ndarray) -> int:
        """Writes rows of one array from the start of some bytes; returns how many these were."""
        array = self._arrays[key]
        count = (len(places) if isinstance(places, list) else len(places[0])) * array.shape[2]
        size = count * array.itemsize * math.prod(array.shape[3:])
        self.write(key, places, start[:size].view(array.dtype).reshape(count, *array.shape[3:]))
        return size
