"""Log-probabilities of next tokens after many texts that begin alike; their common beginning is read once.

A judge's questions differ in a few words at their end, and captions begin alike, too. The common beginning of all texts
is kept in a cache. Their ends are sorted and packed as trees behind it:

    beginning --- You --- see --- here --- an apple --- . ->
                   |               `------ a --- dagger --- . ->
                   `----- kill --- ...

A token attends to the beginning and to its ancestors, at the same position as in a text of its own.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from motif_jax.language.loaded import Language
from motif_jax.language.model import PrefixState
from motif_jax.structs import UserError

NODES = {"cpu": 256}  # of a tree; more for an accelerator
MANY_NODES = 2048
KEPT = 4  # beginnings
ENDS = 4  # nodes per text that a tree has room for


class Tree(NamedTuple):
    """Ends of texts, packed."""

    tokens: np.ndarray  # [K] int32
    above: np.ndarray  # ancestors of each node, itself included. [K, K] bool
    last: np.ndarray  # the node at the end of each text, 0 where there is no text. [K / ENDS] int32


class NextTokens:
    """Computes log-probabilities of the same few next tokens after any texts."""

    def __init__(self, language: Language, ids: Sequence[int]):
        """`ids`: tokens whose log-probabilities are wanted. [K]"""
        self._language, self._ids = language, jnp.asarray(ids)
        self._begin: tuple[int, ...] = ()
        self._states: dict[tuple[int, ...], dict[int, PrefixState]] = {}  # by beginning, and by the room for nodes
        self._nodes = NODES.get(jax.default_backend(), MANY_NODES)
        graph = language.graph

        @functools.partial(jax.jit, static_argnums=3)
        def begin(params: Any, tokens: jax.Array, segments: jax.Array, room: int) -> PrefixState:
            return nnx.merge(graph, params).begin(tokens, segments, room)[0]

        @jax.jit
        def read(params: Any, state: PrefixState, tree: Tree) -> jax.Array:
            model = nnx.merge(graph, params)
            hidden = model.read_branches(state, tree.tokens[None], tree.above[None])[0]
            return jax.nn.log_softmax(model.logits(hidden[tree.last]))[:, self._ids]

        self._read_begin, self._read = begin, read

    def __call__(self, rows: Sequence[Sequence[int]]) -> np.ndarray:
        """Log-probabilities of the tokens `ids` after each text. [B, K] float32

        `rows`: the texts as tokens, at least one each. Beginnings of earlier calls are used where they fit.
        """
        most = self._language.config.max_positions
        if most and (longest := max(map(len, rows))) > most:
            raise UserError(f"a text has {longest:,} tokens, but this language model reads at most {most:,}")
        self._use_beginning(rows)
        size = len(self._begin)
        ends = [tuple(row[size:]) for row in rows]
        room = max(self._nodes, 1 << (max(map(len, ends)) - 1).bit_length())
        log_probs = np.empty((len(rows), len(self._ids)), np.float32)
        for numbers, tree in pack(ends, room):
            scores = self._read(self._language.params, self._state(room), tree)
            log_probs[numbers] = np.asarray(scores)[: len(numbers)]
        return log_probs

    def _use_beginning(self, rows: Sequence[Sequence[int]]) -> None:
        least = min(map(len, rows)) - 1  # the last token of each row stays
        first, last = min(map(tuple, rows)), max(map(tuple, rows))  # in the order of tokens, all rows lie between
        shared = first[: min(common(first, last), least)]
        cached = [begin for begin in self._states if begin and shared[: len(begin)] == begin]
        self._begin = max(cached, key=len, default=shared)
        self._states.setdefault(self._begin, {})
        if len(self._states) > KEPT:
            del self._states[next(begin for begin in self._states if begin != self._begin)]

    def _state(self, room: int) -> PrefixState:
        states = self._states[self._begin]
        if room not in states:
            tokens = np.array([self._begin or (0,)], np.int32)
            segments = np.full(tokens.shape, bool(self._begin), np.int32)  # a place of padding, if nothing is common
            states[room] = self._read_begin(self._language.params, tokens, segments, room)
        return states[room]


def common(first: Sequence[int], second: Sequence[int]) -> int:
    """The number of tokens that two texts have in common at their beginning."""
    pairs = zip(first, second, strict=False)
    return next((at for at, (one, other) in enumerate(pairs) if one != other), min(len(first), len(second)))


def pack(ends: Sequence[tuple[int, ...]], room: int) -> Iterator[tuple[list[int], Tree]]:
    """Packs texts into trees of `room` nodes, in their order as tokens; yields the texts' numbers with each tree."""
    order = sorted(range(len(ends)), key=ends.__getitem__)
    while order:
        tree = Tree(np.zeros(room, np.int32), np.eye(room, dtype=bool), np.zeros(room // ENDS, np.int32))
        used, path = 0, np.zeros(room, np.intp)  # path: the nodes of the text before
        before: tuple[int, ...] = ()
        numbers: list[int] = []
        for number in order[: room // ENDS]:
            end = ends[number]
            shared = common(before, end)
            new = len(end) - shared
            if used + new > room:
                break
            path[shared : len(end)] = np.arange(used, used + new)
            tree.tokens[used : used + new] = end[shared:]
            for depth in range(shared, len(end)):
                tree.above[path[depth], path[:depth]] = True
            tree.last[len(numbers)] = path[len(end) - 1]
            used, before = used + new, end
            numbers.append(number)
        order = order[len(numbers) :]
        yield numbers, tree
