"""From texts to batches: rows of tokens, of few lengths and sizes, so that few programs are compiled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from jax.sharding import Mesh

from motif_jax.devices.mesh import batch_parts, shard
from motif_jax.language.config import LanguageConfig
from motif_jax.structs import UserError
from motif_jax.tokens import Tokeniser

BUCKET = 64  # contexts are padded to multiples of so many tokens


class TextBatches(NamedTuple):
    """How the texts of one model are turned into batches."""

    config: LanguageConfig
    tokeniser: Tokeniser
    mesh: Mesh
    batch_size: int  # rows, at most

    def encode(self, contexts: Sequence[str], special_tokens: bool, marks: bool = False) -> list[list[int]]:
        """The tokens of contexts, see `Tokeniser.encode`; refuses one without any."""
        rows = [self.tokeniser.encode(context, special_tokens, marks) for context in contexts]
        for number, row in enumerate(rows):
            if not row:
                raise UserError(f"context {number} has no tokens, and a language model needs one to go on from")
        return rows

    def encode_choice(self, choice: str) -> list[int]:
        """The tokens of a choice; refuses one without any."""
        tokens = self.tokeniser.encode(choice)
        if not tokens:
            raise UserError(f"the choice {choice!r:.80} has no tokens")
        return tokens

    def chunks(self, rows: Sequence[Sequence[int]], more: int) -> Iterator[list[int]]:
        """Numbers of rows that are computed together: those of about the same length."""
        most = self.config.max_positions
        for number, row in enumerate(rows):
            if most and len(row) + more > most:
                raise UserError(
                    f"context {number} has {len(row)} tokens, and {more} may follow; this language model reads at "
                    f"most {most}"
                )
        order = sorted(range(len(rows)), key=lambda row: len(rows[row]))
        for start in range(0, len(order), self.batch_size):
            yield order[start : start + self.batch_size]

    def size(self, num_rows: int) -> int:
        """Rows of a batch: the next power of two, and a multiple of the parts that it is cut into."""
        parts = batch_parts(self.mesh)
        return -(-(1 << (num_rows - 1).bit_length()) // parts) * parts

    def fill(self, array: np.ndarray, num_rows: int) -> np.ndarray:
        """Fills a batch of `num_rows` up to its size, with copies of the first row."""
        return np.concatenate([array, np.repeat(array[:1], self.size(num_rows) - num_rows, 0)])

    def pad(self, rows: Sequence[Sequence[int]]) -> tuple[Any, Any]:
        """Tokens and segments. Rows that fill up the batch are copies of the first."""
        tokens, segments = pad_rows(rows)
        return shard((self.fill(tokens, len(rows)), self.fill(segments, len(rows))), self.mesh)


def pad_rows(
    rows: Sequence[Sequence[int] | np.ndarray], multiple: int = BUCKET, least: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """Rows of tokens as one array, with zeros behind them; and segments, which are 1 where there is a token.

    Args:
      rows: B of them.
      multiple: what the width L is rounded up to.
      least: the width before that, at least; it is that of the longest row otherwise.

    Returns:
      [B, L] int32, twice.
    """
    width = -(-max(least, *map(len, rows)) // multiple) * multiple
    tokens, segments = (np.zeros((len(rows), width), np.int32) for _ in range(2))
    for number, row in enumerate(rows):
        tokens[number, : len(row)], segments[number, : len(row)] = row, 1
    return tokens, segments
