"""Turns texts into batches of tokens. Their shapes are rounded up, so that few programs are compiled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from jax.sharding import Mesh

from motif_jax.devices.mesh import batch_parts, shard
from motif_jax.language.config import LanguageConfig
from motif_jax.structs import UserError
from motif_jax.tokens import Tokeniser

BUCKET = 64  # contexts are padded to a multiple of this number of tokens


class TextBatches(NamedTuple):
    """Turns texts into batches for one model."""

    config: LanguageConfig
    tokeniser: Tokeniser
    mesh: Mesh
    batch_size: int  # maximum number of rows

    def encode(
        self, contexts: Sequence[str] | Sequence[list[int]], special_tokens: bool, marks: bool = False
    ) -> list[list[int]]:
        """The tokens of contexts, see `Tokeniser.encode`; raises UserError for a context without tokens.

        Contexts that are tokens already stay as they are.
        """
        rows = [
            self.tokeniser.encode(context, special_tokens, marks) if isinstance(context, str) else context
            for context in contexts
        ]
        for number, row in enumerate(rows):
            if not row:
                raise UserError(f"context {number} has no tokens, but a language model needs at least one")
        return rows

    def encode_choice(self, choice: str) -> list[int]:
        """The tokens of a choice; raises UserError if it has none."""
        tokens = self.tokeniser.encode(choice)
        if not tokens:
            raise UserError(f"the choice {choice!r:.80} has no tokens")
        return tokens

    def chunks(self, rows: Sequence[Sequence[int]], room: int) -> Iterator[list[int]]:
        """Groups the numbers of the rows by similar length, for batches; `room` tokens may follow each row."""
        most = self.config.max_positions
        for number, row in enumerate(rows):
            if most and len(row) + room > most:
                raise UserError(
                    f"context {number} has {len(row)} tokens, and {room} may follow, but this language model reads "
                    f"at most {most}"
                )
        order = sorted(range(len(rows)), key=lambda row: len(rows[row]))
        for start in range(0, len(order), self.batch_size):
            yield order[start : start + self.batch_size]

    def size(self, num_rows: int) -> int:
        """The padded number of rows: the next power of two, rounded up to a multiple of the mesh's batch parts."""
        parts = batch_parts(self.mesh)
        return -(-(1 << (num_rows - 1).bit_length()) // parts) * parts

    def fill(self, array: np.ndarray, num_rows: int) -> np.ndarray:
        """Pads a batch of `num_rows` to its size with copies of the first row."""
        return np.concatenate([array, np.repeat(array[:1], self.size(num_rows) - num_rows, 0)])

    def pad(self, rows: Sequence[Sequence[int]]) -> tuple[Any, Any]:
        """Tokens and segments, padded with copies of the first row."""
        tokens, segments = pad_rows(rows)
        return shard((self.fill(tokens, len(rows)), self.fill(segments, len(rows))), self.mesh)


def pad_rows(
    rows: Sequence[Sequence[int] | np.ndarray], multiple: int = BUCKET, least: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """Tokens padded with zeros on the right, and segments: 1 for tokens, 0 for padding.

    Args:
      rows: B rows of tokens.
      multiple: the width L is rounded up to a multiple of this.
      least: minimum width before rounding.

    Returns:
      tokens and segments, [B, L] int32 each.
    """
    width = -(-max(least, *map(len, rows)) // multiple) * multiple
    tokens, segments = (np.zeros((len(rows), width), np.int32) for _ in range(2))
    for number, row in enumerate(rows):
        tokens[number, : len(row)], segments[number, : len(row)] = row, 1
    return tokens, segments
