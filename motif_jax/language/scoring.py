"""Log-probabilities of choices, given a context: sums over a choice's tokens, not normalised by length.

The context is read once for all choices. The choices are packed behind it as a tree, where common first tokens are
shared: "turn left" and "turn right" are

    context --- turn --- left
                    `--- right

Every token attends to the context and to its ancestors, and has the same position as in a separate choice. So each
choice has the same probability as when it is scored alone (tests/language/scoring_test.py), for a fraction of the work.
The last token of a choice is not a node, because no token attends to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.language.model import Decoder, EncoderDecoder
from motif_jax.language.packing import Places


class ChoiceTree(NamedTuple):
    """C choices of up to N tokens as a tree of K nodes. B is 1 if all contexts have the same choices."""

    nodes: np.ndarray  # tokens. [B, K] int32
    above: np.ndarray  # ancestors of each node, itself included. [B, K, K] bool
    tokens: np.ndarray  # tokens of the choices, padded with zeros. [B, C, N] int32
    parents: np.ndarray  # hidden state that predicts each token: 0 is the context's end, k + 1 node k. [B, C, N] int32
    valid: np.ndarray  # False for padding; a choice of padding alone does not exist. [B, C, N] bool


class Scores(NamedTuple):
    """Scores of choices."""

    log_probs: jax.Array  # minus infinity for choices that do not exist. [B, C]
    token_logits: jax.Array  # logits of the tokens, before the softmax; 0 for padding. [B, C, N]
    hidden: jax.Array  # hidden state at the context's end, for value heads. [B, width]


def make_tree(choices: Sequence[Sequence[Sequence[int]]], multiple: int = 1) -> ChoiceTree:
    """Packs choices, on the host.

    `choices`: tokens of the choices of each context; a single entry serves all contexts. Numbers of nodes, choices and
    tokens are rounded up to multiples of `multiple`, for fewer compiled programs.
    """
    prefixes = [[tuple(choice[:end]) for choice in of_row for end in range(1, len(choice))] for of_row in choices]
    # Numbers of all proper prefixes of the choices; 0 is the empty one.
    tries = [{path: number for number, path in enumerate(dict.fromkeys([(), *paths]))} for paths in prefixes]
    num_rows, num_choices = len(choices), _up(max(map(len, choices)), multiple)
    num_nodes = _up(max(len(trie) for trie in tries) - 1, multiple)
    length = _up(max((len(choice) for of_row in choices for choice in of_row), default=0), multiple)
    shape = num_rows, num_choices, length
    tree = ChoiceTree(
        np.zeros((num_rows, num_nodes), np.int32), np.zeros((num_rows, num_nodes, num_nodes), bool),
        np.zeros(shape, np.int32), np.zeros(shape, np.int32), np.zeros(shape, bool),
    )  # fmt: skip
    for row, (of_row, trie) in enumerate(zip(choices, tries, strict=True)):
        for path, number in trie.items():
            if path:
                tree.nodes[row, number - 1] = path[-1]
                above = [trie[path[:end]] - 1 for end in range(1, len(path) + 1)]
                tree.above[row, number - 1, above] = True
        for choice, tokens in enumerate(of_row):
            for position, token in enumerate(tokens):
                tree.tokens[row, choice, position] = token
                tree.parents[row, choice, position] = trie[tuple(tokens[:position])]
                tree.valid[row, choice, position] = True
    return tree


def _up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def score(
    model: Decoder | EncoderDecoder, tokens: jax.Array, segments: jax.Array, tree: ChoiceTree,
    places: Places | None = None,
) -> Scores:  # fmt: skip
    """Scores choices for contexts of one segment each; see `model.py`. [B, L]

    `places`: of contexts that share rows, for a decoder; see `Decoder.read_tree`.
    """
    packed = () if places is None else (places,)
    hidden = model.read_tree(tokens, segments, jnp.asarray(tree.nodes), jnp.asarray(tree.above), *packed)
    logits = model.logits(hidden)  # [B, 1 + K, vocabulary]
    total = jax.nn.logsumexp(logits, -1)
    rows = jnp.arange(len(tokens))[:, None, None]
    chosen = logits[rows, tree.parents, tree.tokens]
    valid = jnp.broadcast_to(tree.valid, chosen.shape)
    log_probs = jnp.where(valid, chosen - total[rows, tree.parents], 0)
    return Scores(jnp.where(valid.any(-1), log_probs.sum(-1), -jnp.inf), jnp.where(valid, chosen, 0), hidden[:, 0])
