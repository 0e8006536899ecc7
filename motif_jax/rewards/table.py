"""A cache of the rewards of messages: the network runs only for messages that are not in it yet.

Messages repeat, so while an agent is trained nearly all of them are known. A message is found by a hash of its bytes
and then compared byte by byte with the stored one, so a collision of hashes never returns another message's reward.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from motif_jax.captions import WIDTH

WORDS = WIDTH // 8  # a message as 64-bit numbers
CAPACITY = 1 << 19  # messages: 128 MiB


class RewardTable:
    """Maps messages to rewards, and caches them; call it with messages. It is not thread-safe."""

    def __init__(
        self,
        value: Callable[[np.ndarray], np.ndarray],
        messages: np.ndarray,
        *,
        capacity: int = CAPACITY,
    ):
        """Fills the table with the messages that are known beforehand.

        Args:
          value: the network, [K, 256] uint8 -> [K] float32.
          messages: [U, 256] uint8
          capacity: number of messages; if it would be exceeded, all but `messages` are removed.
        """
        self.misses = 0  # messages for which the network had to run
        self._value, self._capacity, self._beforehand = value, max(capacity, len(messages)), messages
        self._factors = np.random.default_rng(0).integers(2**63, size=WORDS, dtype=np.uint64) * 2 + 1
        self._messages = np.zeros((0, WIDTH), np.uint8)  # [places, 256], of which so many are taken as there are values
        self._values = np.zeros(0, np.float32)  # in the order in which they came
        self._hashes, self._rows = np.zeros(0, np.uint64), np.zeros(0, np.int64)  # ascending; and the row of each
        self._forget()

    def __len__(self) -> int:
        return len(self._hashes)

    def __call__(self, messages: np.ndarray) -> np.ndarray:
        """Returns the rewards of messages. [..., 256] uint8 -> [...] float32"""
        flat = np.ascontiguousarray(messages).reshape(-1, messages.shape[-1])
        found, known = self._find(flat)
        if not known.all():
            rest = np.flatnonzero(~known)
            new, inverse = np.unique(flat[rest], axis=0, return_inverse=True)
            values = self._value(new)
            self.misses += len(new)
            found[rest] = values[inverse.reshape(-1)]
            self._add(new, values)
        return found.reshape(messages.shape[:-1])

    def _find(self, messages: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the cached values, and a mask of the messages that are in the table."""
        if not len(self):
            return np.zeros(len(messages), np.float32), np.zeros(len(messages), bool)
        place = np.minimum(np.searchsorted(self._hashes, self._hash(messages)), len(self) - 1)
        known = (self._messages[self._rows[place]] == messages).all(1)
        return self._values[self._rows[place]], known

    def _hash(self, messages: np.ndarray) -> np.ndarray:
        words = messages.view(np.uint64)
        width = WORDS - int(np.argmax(words[:, ::-1].any(0))) if words.any() else 1  # most of a message is zeros
        words = words[:, :width]
        words = words ^ words >> np.uint64(29)  # because a product hardly spreads the upper bits of its factors
        return (words * self._factors[:width]).sum(1, dtype=np.uint64)

    def _add(self, messages: np.ndarray, values: np.ndarray) -> None:
        hashes = self._hash(messages)
        _, firsts = np.unique(hashes, return_index=True)
        firsts = firsts[~np.isin(hashes[firsts], self._hashes)]  # of two with one hash, only the first is ever found
        messages, values, hashes = messages[firsts], values[firsts], hashes[firsts]
        if len(self) + len(messages) > self._capacity:
            self._forget()
        if len(self) + len(messages) > self._capacity:
            return
        first, count = len(self), len(messages)
        if first + count > len(self._messages):  # room for as many again, so that copies are rare
            room = np.zeros((max(first + count, min(2 * first, self._capacity)), messages.shape[1]), np.uint8)
            room[:first] = self._messages[:first]
            self._messages = room
        self._messages[first : first + count] = messages
        self._values = np.append(self._values, values.astype(np.float32))
        all_hashes = np.append(self._hashes, hashes)
        order = np.argsort(all_hashes, kind="stable")
        self._rows = np.append(self._rows, np.arange(first, first + count))[order]
        self._hashes = all_hashes[order]

    def _forget(self) -> None:
        """Removes all messages except those given at the start."""
        self._values, self._hashes, self._rows = self._values[:0], self._hashes[:0], self._rows[:0]
        if len(self._beforehand):
            distinct = np.unique(self._beforehand, axis=0)
            self._add(distinct, self._value(distinct))
