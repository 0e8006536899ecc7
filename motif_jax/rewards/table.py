"""A cache of the rewards of messages. Messages repeat, so during training nearly all of them are in it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from motif_jax.captions import CaptionIndex, distinct_messages

CAPACITY = 1 << 19  # messages: 128 MiB


class RewardTable:
    """Maps messages to rewards with a cache; call it with messages. Not thread-safe."""

    def __init__(self, value: Callable[[np.ndarray], np.ndarray], messages: np.ndarray, *, capacity: int = CAPACITY):
        """Fills the table with known messages.

        Args:
          value: the network, [K, 256] uint8 -> [K] float32.
          messages: known messages. [U, 256] uint8
          capacity: maximum number of messages; before it is exceeded, all but `messages` are removed.
        """
        self.misses = 0  # number of messages for which the network had to run
        self._value, self._capacity, self._kept = value, max(capacity, len(messages)), messages
        self._index, self._values = CaptionIndex(), np.zeros(0, np.float32)
        self._forget()

    def __len__(self) -> int:
        return len(self._index)

    def __call__(self, messages: np.ndarray) -> np.ndarray:
        """Returns the rewards of messages. [..., 256] uint8 -> [...] float32"""
        flat = np.ascontiguousarray(messages).reshape(-1, messages.shape[-1])
        rows = self._index.lookup.find(flat)
        rewards = self._values[rows] if len(self) else np.zeros(len(flat), np.float32)
        missing = np.flatnonzero(rows < 0)
        if len(missing):
            new, inverse, _ = distinct_messages(flat[missing])
            values = self._value(new)
            self.misses += len(new)
            rewards[missing] = values[inverse]
            self._add(new, values)
        return rewards.reshape(messages.shape[:-1])

    def _add(self, messages: np.ndarray, values: np.ndarray) -> None:
        if len(self) + len(messages) > self._capacity:
            self._forget()
        if len(self) + len(messages) > self._capacity:
            return
        added = self._index.add(messages)
        self._values = np.append(self._values, values[added].astype(np.float32))

    def _forget(self) -> None:
        """Removes all messages except the known ones."""
        self._index.clear()
        self._values = self._values[:0]
        if len(self._kept):
            distinct, _, _ = distinct_messages(self._kept)
            self._add(distinct, self._value(distinct))
