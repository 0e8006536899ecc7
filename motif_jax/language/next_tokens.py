"""Log-probabilities of next tokens after many texts that begin alike: the common beginning is read once.

A judge's questions differ in a few words at their end. With a beginning of P tokens and ends of T, reading N whole
texts takes N (P + T) tokens; here it takes P + N T.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from motif_jax.language.loaded import Language
from motif_jax.language.model import PrefixState
from motif_jax.language.texts import pad_rows
from motif_jax.structs import UserError

BUCKET = 8  # ends are padded to a multiple of this number of tokens
TOKENS = 1024  # of a batch


class NextTokens:
    """A decoder that is asked about the same few next tokens again and again."""

    def __init__(self, language: Language, ids: Sequence[int]):
        """`ids`: tokens whose log-probabilities are wanted. [K]"""
        self._language, self._ids = language, jnp.asarray(ids)
        self._begin: tuple[int, ...] = ()
        self._states: dict[int, PrefixState] = {}  # of the beginning, by the room for ends
        graph = language.graph

        @functools.partial(jax.jit, static_argnums=3)
        def begin(params: Any, tokens: jax.Array, segments: jax.Array, room: int) -> PrefixState:
            return nnx.merge(graph, params).begin(tokens, segments, room)[0]

        @jax.jit
        def read(params: Any, state: PrefixState, tokens: jax.Array, segments: jax.Array) -> jax.Array:
            model = nnx.merge(graph, params)
            hidden = model.read_rows(state, tokens, segments)
            last = hidden[jnp.arange(len(tokens)), segments.sum(1) - 1]  # [B, width]
            return jax.nn.log_softmax(model.logits(last))[:, self._ids]

        self._read_begin, self._read = begin, read

    def __call__(self, rows: Sequence[Sequence[int]]) -> np.ndarray:
        """Log-probabilities of the tokens `ids` after each text. [B, K] float32

        `rows`: the texts as tokens, at least one each. The beginning of the first call is used as long as it fits.
        """
        most = self._language.config.max_positions
        if most and (longest := max(map(len, rows))) > most:
            raise UserError(f"a text has {longest:,} tokens, but this language model reads at most {most:,}")
        self._use_beginning(rows)
        size = len(self._begin)
        found = np.empty((len(rows), len(self._ids)), np.float32)
        for numbers in self._batches([len(row) - size for row in rows]):
            ends = [rows[number][size:] for number in numbers]
            ends += ends[:1] * ((1 << (len(ends) - 1).bit_length()) - len(ends))  # to a power of two
            tokens, segments = pad_rows(ends, BUCKET)
            scores = self._read(self._language.params, self._state(tokens.shape[1]), tokens, segments)
            found[numbers] = np.asarray(scores)[: len(numbers)]
        return found

    def _use_beginning(self, rows: Sequence[Sequence[int]]) -> None:
        size = len(self._begin)
        if size and all(len(row) > size and tuple(row[:size]) == self._begin for row in rows):
            return
        least = min(map(len, rows)) - 1  # the last token of each row stays
        first, last = (
            min(map(tuple, rows)),
            max(map(tuple, rows)),
        )  # in the order of the tokens, so that all rows lie between
        same = next((at for at in range(least) if first[at] != last[at]), least)
        self._begin, self._states = first[:same], {}

    def _state(self, room: int) -> PrefixState:
        if room not in self._states:
            tokens, segments = pad_rows([self._begin], 1)  # a single place of padding, if nothing is common
            self._states[room] = self._read_begin(self._language.params, tokens, segments, room)
        return self._states[room]

    @staticmethod
    def _batches(lengths: Sequence[int]) -> Iterator[list[int]]:
        """Numbers of rows of similar length, for batches of about TOKENS tokens."""
        order = sorted(range(len(lengths)), key=lengths.__getitem__)
        while order:
            width = -(-lengths[order[0]] // BUCKET) * BUCKET
            size = max(TOKENS // width, 1)
            batch = [number for number in order[:size] if lengths[number] <= width]
            order = order[len(batch) :]
            yield batch
