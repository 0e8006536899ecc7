"""Caption numbers: each distinct message of 256 bytes is stored once, and its number stands for it everywhere else.

Messages repeat heavily (random play shows some 600 distinct ones in 34,000 steps), and this is what makes the rest
cheap: a question to the language model, a pass of the reward network or a statistic happens once per
distinct caption instead of once per moment.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from motif_jax.files import write_array

WIDTH = 256
WORDS = WIDTH // 8  # a message as 64-bit numbers
FACTORS = np.random.default_rng(0).integers(2**63, size=WORDS, dtype=np.uint64) * 2 + 1  # of the hash, all odd


class CaptionTable:
    """Numbers captions in the order in which they are first seen, and counts them."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self.counts = np.zeros(0, np.int64)  # how often each caption was interned. [U]

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def messages(self) -> np.ndarray:  # [U, 256] uint8
        return np.frombuffer(b"".join(self._numbers), np.uint8).reshape(-1, WIDTH)

    def intern(self, messages: np.ndarray) -> np.ndarray:
        """Numbers of these messages; a new message gets the next number. [..., 256] uint8 -> [...] int32"""
        data, numbers = np.ascontiguousarray(messages).tobytes(), self._numbers
        parts = (data[at : at + WIDTH] for at in range(0, len(data), WIDTH))
        ids = np.fromiter((numbers.setdefault(part, len(numbers)) for part in parts), np.int32)
        counts = np.bincount(ids, minlength=len(numbers))
        counts[: len(self.counts)] += self.counts
        self.counts = counts
        return ids.reshape(messages.shape[:-1])

    def text(self, number: int) -> str:
        return decode(self.messages[number])

    def save(self, directory: Path) -> None:
        write_array(directory / "captions.npy", self.messages)
        write_array(directory / "counts.npy", self.counts)

    @classmethod
    def load(cls, directory: Path) -> CaptionTable:
        table = cls()
        table.intern(np.load(directory / "captions.npy"))
        table.counts = np.load(directory / "counts.npy")
        return table


class Lookup(NamedTuple):
    """What a `CaptionIndex` has found so far. It never changes, so any thread may use it."""

    messages: np.ndarray  # [U or more, 256] uint8, in the order in which they were added
    widths: np.ndarray  # words of each message that are not just zeros at its end. [U] int64
    hashes: np.ndarray  # ascending. [U] uint64
    rows: np.ndarray  # the message of each hash. [U] int64

    def __len__(self) -> int:
        return len(self.hashes)

    def find(self, messages: np.ndarray) -> np.ndarray:
        """The row of each message, -1 for those that are not in the index. [N, 256] uint8 -> [N] int64"""
        if not len(self):
            return np.full(len(messages), -1)
        words = np.ascontiguousarray(messages).view(np.uint64)
        used = np.flatnonzero(np.bitwise_or.reduce(words, 0))
        words = words[:, : used[-1] + 1 if len(used) else 1]  # most of a message is zeros
        place = np.minimum(np.searchsorted(self.hashes, hash_words(words)), len(self) - 1)
        rows, width = self.rows[place], words.shape[1]
        differing = self.messages.view(np.uint64)[:, :width][rows] != words
        # A product counts them in half the time of `any`, which is slow where rows are short.
        known = (differing.view(np.int8) @ np.ones(width, np.int8) == 0) & (self.widths[rows] <= width)
        return np.where(known, rows, -1)


class CaptionIndex:
    """Numbers distinct captions, many at a time: rows from 0 on, in the order in which they are added.

    A message is found by a hash of its bytes and then compared byte by byte with the stored one, so a collision of
    hashes never returns another message's row. Of two messages with one hash, only the first gets a row.
    """

    def __init__(self) -> None:
        self.clear()

    def __len__(self) -> int:
        return len(self.lookup)

    @property
    def messages(self) -> np.ndarray:  # [U, 256] uint8
        return self.lookup.messages[: len(self)]

    def clear(self) -> None:
        nothing = np.zeros(0, np.int64)
        self.lookup = Lookup(np.zeros((0, WIDTH), np.uint8), nothing, np.zeros(0, np.uint64), nothing)

    def add(self, messages: np.ndarray) -> np.ndarray:
        """Adds distinct messages that are not in the index yet. [K, 256] uint8

        Returns which were added, in their order; not those whose hash another message has. [K'] int64
        """
        before = self.lookup
        hashes = hash_words(messages.view(np.uint64))
        _, added = np.unique(hashes, return_index=True)
        added = np.sort(added)
        place = np.searchsorted(before.hashes, hashes[added])
        if len(before):
            taken = before.hashes[np.minimum(place, len(before) - 1)] == hashes[added]
            added, place = added[~taken], place[~taken]
        messages, hashes = messages[added], hashes[added]
        first, count = len(before), len(messages)
        room = before.messages
        if first + count > len(room):  # for as many again, so that copies are rare
            room = np.zeros((max(first + count, 2 * first), WIDTH), np.uint8)
            room[:first] = before.messages[:first]
        room[first : first + count] = messages  # behind the rows that older lookups know
        order = np.argsort(hashes)
        used = messages.view(np.uint64) != 0
        self.lookup = Lookup(
            room,
            np.append(before.widths, np.where(used.any(1), WORDS - used[:, ::-1].argmax(1), 0)),
            np.insert(before.hashes, place[order], hashes[order]),
            np.insert(before.rows, place[order], np.arange(first, first + count)[order]),
        )
        return added


def hash_words(words: np.ndarray) -> np.ndarray:
    """A hash of messages as 64-bit numbers, [N, W] -> [N]; zeros at the end of a message change nothing."""
    words = words ^ words >> np.uint64(29)  # because a product hardly spreads the upper bits of its factors
    return words @ FACTORS[: words.shape[1]]


def distinct_messages(messages: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The distinct messages in ascending order, the place of each message among them, and how often each is there.

    [N, 256] uint8 -> [D, 256] uint8, [N] and [D] int64. As `np.unique` with axis 0 in a thirtieth of the time: rows are
    compared as bytes, not as records of 256 fields.
    """
    rows = np.ascontiguousarray(messages).view(f"V{WIDTH}").reshape(-1)
    _, first, places, counts = np.unique(rows, return_index=True, return_inverse=True, return_counts=True)
    return messages[first], places, counts


def decode(message: np.ndarray) -> str:
    """Text of one message: zero bytes dropped wherever they are, every other byte one character. [256] uint8"""
    return message[message != 0].tobytes().decode("latin-1")


def encode(text: str) -> np.ndarray:
    """The message that shows `text`, cut at 256 characters. -> [256] uint8"""
    return np.frombuffer(text.encode("latin-1", "replace")[:WIDTH].ljust(WIDTH, b"\0"), np.uint8)
