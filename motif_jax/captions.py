"""Caption numbers: each distinct message of 256 bytes is stored once, and its number stands for it everywhere else.

Messages repeat heavily (random play shows some 600 distinct ones in 34,000 steps), and this is what makes the rest
cheap: a question to the language model, a pass of the reward network or a statistic happens once per
distinct caption instead of once per moment.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from motif_jax.files import read_array, write_array

WIDTH = 256


class CaptionTable:
    """Numbers captions in the order in which they are first seen, and counts them."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self._counts: list[int] = []

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def counts(self) -> np.ndarray:
        """How often each caption was interned. [U] int64"""
        return np.array(self._counts, np.int64)

    @property
    def messages(self) -> np.ndarray:
        """The captions themselves. [U, 256] uint8"""
        return np.frombuffer(b"".join(self._numbers), np.uint8).reshape(-1, WIDTH)

    def intern(self, messages: np.ndarray) -> np.ndarray:
        """Numbers of these messages; a new message gets the next number. [..., 256] uint8 -> [...] int32"""
        if messages.dtype != np.uint8 or messages.shape[-1] != WIDTH:
            raise ValueError(f"messages must be [..., {WIDTH}] uint8, not {messages.shape} {messages.dtype}")
        data = np.ascontiguousarray(messages).tobytes()
        numbers, counts = self._numbers, self._counts
        ids = np.empty(len(data) // WIDTH, np.int32)
        for index in range(len(ids)):
            message = data[index * WIDTH : (index + 1) * WIDTH]
            number = numbers.get(message)
            if number is None:
                number = numbers[message] = len(numbers)
                counts.append(0)
            counts[number] += 1
            ids[index] = number
        return ids.reshape(messages.shape[:-1])

    def text(self, number: int) -> str:
        """The text of a caption."""
        return decode(self.messages[number])

    def save(self, directory: Path) -> None:
        """Writes `captions.npy` and `counts.npy`."""
        write_array(directory / "captions.npy", self.messages)
        write_array(directory / "counts.npy", self.counts)

    @classmethod
    def load(cls, directory: Path) -> CaptionTable:
        """Reads what `save` wrote."""
        messages, counts = read_array(directory / "captions.npy"), read_array(directory / "counts.npy")
        if messages.dtype != np.uint8 or counts.dtype != np.int64 or messages.shape != (counts.size, WIDTH):
            raise ValueError(f"{directory} holds no caption table: {messages.shape} {messages.dtype}")
        table = cls()
        table.intern(messages)
        if len(table) != len(counts):
            raise ValueError(f"{directory} holds a caption twice")
        table._counts = counts.tolist()
        return table


def decode(message: np.ndarray) -> str:
    """Text of one message: zero bytes dropped wherever they are, every other byte one character. [256] uint8"""
    return message[message != 0].tobytes().decode("latin-1")


def encode(text: str) -> np.ndarray:
    """The message that shows `text`, cut at 256 characters. -> [256] uint8"""
    return np.frombuffer(text.encode("latin-1", "replace")[:WIDTH].ljust(WIDTH, b"\0"), np.uint8)
