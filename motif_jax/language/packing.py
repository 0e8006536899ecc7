"""Texts without padding between them: texts of different lengths share rows, and their common beginning is read once.

The first row of a call begins with the tokens that all texts have in common. Behind them, and in the other rows, lie
the texts without these tokens, each with room for a tree of continuations:

    beginning | rest of text 3 | tree | rest of text 0 | tree |
    rest of text 2 | tree | rest of text 1 | tree | padding   |

Every token attends to the beginning and to its own text, at the same position as in a row of its own. The host decides
where each text lies (`pack`); the device moves the tokens there (`Decoder.read_tree`).
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

STEP = 32  # sizes are multiples of this
FEW = 8  # a call of fewer texts has no common beginning, because it would differ from call to call
SOME = 2.25  # texts of average length in a row; more make attention slower
NOWHERE = 2**30  # an index beyond all slots, for rows that pad a call


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Places:
    """The layout of texts, an array of tokens [..., L]: a call reads `texts` of them in `rows` rows of `size`.

    The arrays have one number for each text, so they are cut into batches like the tokens.
    """

    start: Any  # the first slot of the text after the beginning, among all slots of its call. [...] int32
    common: Any  # number of tokens in the beginning, the same for all texts of a call. [...] int32
    texts: int = field(metadata={"static": True})
    rows: int = field(metadata={"static": True})
    size: int = field(metadata={"static": True})
    room: int = field(metadata={"static": True})  # slots for the beginning; `room` + `size` is L


def pack(tokens: np.ndarray, calls: np.ndarray, nodes: int, padding: int, digits: int = 2) -> tuple[np.ndarray, Places]:
    """Decides where texts lie, on the host; returns the tokens with another L, and their places.

    Args:
      tokens: texts, with `padding` behind them. [..., L]
      calls: the number of the call in which each text is read, from 0 on. [...]
      nodes: of each text's tree.
      digits: binary digits to which the number of rows is rounded up; fewer digits, fewer compiled programs.
    """
    flat = tokens.reshape(-1, tokens.shape[-1])
    lengths = (flat != padding).sum(1)
    texts = int(np.bincount(calls.reshape(-1)).max())
    common = room = 0  # the first tokens that all texts have in common, and the slots for them
    if texts >= FEW:
        differs = (flat != flat[0]).any(0)
        common = min(int(differs.argmax()) if differs.any() else len(differs), int(lengths.min()) - 1)
        room = (common + STEP // 2) // STEP * STEP  # few sizes, for few programs
        common = min(common, room)
    needs = lengths - common + nodes
    # With room for some texts of average length in a row, few slots stay empty, and few sizes occur.
    size = _up(int(max(needs.max(), room, min(needs.sum() + room, SOME * needs.mean()))), 2, STEP)
    starts, most = np.empty(len(flat), np.int32), 1
    order = np.lexsort((-needs, calls.reshape(-1)))  # by call; long texts first, because short ones fill the gaps
    for of_call in np.split(order, np.flatnonzero(np.diff(calls.reshape(-1)[order])) + 1):
        free, rows = [(size - room, 0)], 1  # (slots left, row), ascending
        for number, need in zip(of_call.tolist(), needs[of_call].tolist(), strict=True):
            fitting = bisect.bisect_left(free, (need, 0))
            left, row = free.pop(fitting) if fitting < len(free) else (size, rows)
            rows = max(rows, row + 1)
            starts[number] = row * size + size - left
            bisect.insort(free, (left - need, row))
        most = max(most, rows)
    shape, width = tokens.shape[:-1], size + room
    resized = np.full((len(flat), width), padding, np.int32)
    resized[:, : flat.shape[1]] = flat[:, :width]
    same = np.full(shape, common, np.int32)
    return resized.reshape(*shape, width), Places(starts.reshape(shape), same, texts, _up(most, digits, 1), size, room)


def _up(number: int, digits: int, least: int) -> int:
    """Rounds up to a multiple of `least` that has at most about `digits` binary digits, so that few sizes occur."""
    step = max(least, 1 << max((number - 1).bit_length() - digits, 0))
    return -(-number // step) * step


def lay(
    tokens: jax.Array, lengths: jax.Array, nodes: jax.Array, above: jax.Array, places: Places
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Moves tokens [N, L] of texts, with their `lengths` [N], to their places, on the device.

    `nodes`: tokens of the tree, the same for all texts [1, K]. `above`: ancestors of each node, itself included.
    [1, K, K] bool. Returns the tokens of the rows [R, S]; which slots a token attends to: those of the beginning, then
    its row's [R, S, room + S] bool; each text's last token and nodes, among all slots [N, 1 + K].
    """
    (num_texts, length), num_nodes = tokens.shape, nodes.shape[1]
    total = places.rows * places.size
    ends = places.start + lengths - places.common  # the slot behind each text
    behind = ends[:, None] + jnp.arange(num_nodes)  # [N, K]
    at = jnp.arange(length)[None]
    own = (at >= places.common[:, None]) & (at < lengths[:, None])
    slots = jnp.where(own, places.start[:, None] + at - places.common[:, None], total)  # no slot: dropped
    number = jnp.arange(1, num_texts + 1, dtype=jnp.int32)[:, None]
    begin = jnp.arange(places.room)
    in_begin = begin < places.common[0]

    def fill(first: jax.Array, texts: jax.Array, trees: jax.Array) -> jax.Array:
        slate = jnp.zeros(total, jnp.int32).at[: places.room].set(jnp.where(in_begin, first, 0))
        slate = slate.at[slots].set(texts, mode="drop").at[behind].set(trees, mode="drop")
        return slate.reshape(places.rows, places.size)

    packed = fill(tokens[0, : places.room], tokens, jnp.broadcast_to(nodes, behind.shape))
    text = fill(jnp.full_like(begin, num_texts + 1), jnp.broadcast_to(number, slots.shape), number)
    kind = fill(jnp.zeros_like(begin), jnp.zeros_like(slots), jnp.arange(1, num_nodes + 1)[None])
    # Tokens of texts are kind 0, and attended to by all later ones of the text; nodes by their descendants only.
    sees = jnp.pad(above[0], ((1, 0), (1, 0))).at[:, 0].set(True)
    same = (text[:, :, None] == text[:, None]) & (text > 0)[:, None]
    later = jnp.tril(jnp.ones((places.size, places.size), bool))
    mask = same & later & sees[kind[:, :, None], kind[:, None]]
    shared = ((text > 0) & (text <= num_texts))[:, :, None] & in_begin
    return packed, jnp.concatenate([shared, mask], 2), jnp.concatenate([ends[:, None] - 1, behind], 1)


BUCKET = 64  # contexts are padded to a multiple of this number of tokens


def pad_rows(
    rows: Sequence[Sequence[int] | np.ndarray], multiple: int = BUCKET, least: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """Tokens padded with zeros on the right, and segments: 1 for tokens, 0 for padding. [B, L] int32 each

    `multiple`: the width L is rounded up to a multiple of this. `least`: minimum width before rounding.
    """
    width = -(-max(least, *map(len, rows)) // multiple) * multiple
    tokens, segments = (np.zeros((len(rows), width), np.int32) for _ in range(2))
    for number, row in enumerate(rows):
        tokens[number, : len(row)], segments[number, : len(row)] = row, 1
    return tokens, segments
