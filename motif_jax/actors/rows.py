"""Reads and writes rows of rollouts for many groups of games at a time: one call of NumPy per array, not per group."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np


class Rows:
    """The rollouts of a pool, row by row; a row is what one group wrote in one step."""

    def __init__(self, rollouts: Mapping[str, np.ndarray]):
        """Takes arrays of [S, rows, E, ...]; what is written is written into them."""
        self._per_slot = {key: array.shape[1] for key, array in rollouts.items()}
        self._rows = {  # [S * rows, E, ...]
            key: array.reshape(array.shape[0] * array.shape[1], *array.shape[2:]) for key, array in rollouts.items()
        }

    def read(self, key: str, slots: np.ndarray, steps: np.ndarray, room: int = 0) -> np.ndarray:
        """Rows of one array, side by side. [R * E, ...]; with `room`, so many games, of which the last are zeros.

        A single row is not copied: it changes when its group writes the next rollout into this slot.

        Args:
          key: name of the array.
          slots, steps: where the R rows stand. [R] each
          room: at least R * E.
        """
        rows = self._rows[key]
        groups, size, shape = len(slots), rows.shape[1], rows.shape[2:]
        count = groups * size
        where = slots * self._per_slot[key] + steps
        if groups == 1 and room <= count:
            return rows[where[0]]
        found = np.empty((max(room, count), *shape), rows.dtype)
        # With the mode "raise", NumPy would make a copy of the result, so that an error leaves it as it was.
        np.take(rows, where, 0, out=found[:count].reshape(groups, size, *shape), mode="clip")
        found[count:] = 0
        return found

    def write(self, key: str, slots: np.ndarray, steps: np.ndarray, values: np.ndarray) -> None:
        """Writes `values`, [R * E, ...], to rows of one array."""
        rows = self._rows[key]
        rows[slots * self._per_slot[key] + steps] = np.asarray(values).reshape(len(slots), *rows.shape[1:])
