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
        self._widths = np.zeros(0, np.int64)  # words of each message that are not just zeros at its end
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
        words = _without_zeros(messages.view(np.uint64))
        place = np.minimum(np.searchsorted(self._hashes, self._hash(words)), len(self) - 1)
        rows, width = self._rows[place], words.shape[1]
        differing = self._messages.view(np.uint64)[:, :width][rows] != words
        # A product counts them in half the time of `any`, which is slow where rows are short.
        known = (differing.view(np.int8) @ np.ones(width, np.int8) == 0) & (self._widths[rows] <= width)
        return self._values[rows], known

    def _hash(self, words: np.ndarray) -> np.ndarray:
        """[N, W] -> [N]; zeros at the end of a message change nothing."""
        words = words ^ words >> np.uint64(29)  # because a product hardly spreads the upper bits of its factors
        return words @ self._factors[: words.shape[1]]

    def _add(self, messages: np.ndarray, values: np.ndarray) -> None:
        hashes = self._hash(messages.view(np.uint64))
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
        used = messages.view(np.uint64) != 0
        self._widths = np.append(self._widths, np.where(used.any(1), WORDS - used[:, ::-1].argmax(1), 0))
        all_hashes = np.append(self._hashes, hashes)
        order = np.argsort(all_hashes, kind="stable")
        self._rows = np.append(self._rows, np.arange(first, first + count))[order]
        self._hashes = all_hashes[order]

    def _forget(self) -> None:
        """Removes all messages except those given at the start."""
        self._values, self._widths = self._values[:0], self._widths[:0]
        self._hashes, self._rows = self._hashes[:0], self._rows[:0]
        if len(self._beforehand):
            distinct = np.unique(self._beforehand, axis=0)
            self._add(distinct, self._value(distinct))


def _without_zeros(words: np.ndarray) -> np.ndarray:
    """The columns up to the last that is not all zeros, one at least: most of a message is zeros. [N, WORDS]"""
    used = np.flatnonzero(np.bitwise_or.reduce(words, 0))
    return words[:, : used[-1] + 1 if len(used) else 1]
