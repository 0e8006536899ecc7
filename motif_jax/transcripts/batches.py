"""Makes batches of episodes. The contents of a batch depend on the seed and the epoch alone.

There are two layouts, both with few different shapes, because each shape is compiled:

- buckets: one episode per row, in batches of similar lengths (`bucket_widths`).
- packed: several episodes per row, one after another, each in its own segment; for short episodes of unequal lengths.

Every episode appears once per epoch, so the last batches may have empty rows, whose segments are 0.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from motif_jax.transcripts.render import Renderer, Rows

ROUND = 16  # widths are multiples of this
OPEN_ROWS = 64  # rows that are filled at the same time
PART = 256  # times the rows of a batch: episodes that are shuffled together, where an epoch goes in order


class EpochPlan(NamedTuple):
    """The contents of the batches of an epoch."""

    rows: list[list[list[int]]]  # [batches][rows]: the episodes of each row
    widths: list[int]  # of each batch, in tokens

    def __len__(self) -> int:
        return len(self.rows)


def bucket_widths(lengths: np.ndarray, max_length: int) -> list[int]:
    """At most four ascending widths of buckets with about equally many episodes; the last fits every episode."""
    cut = np.minimum(lengths, max_length)
    quantiles = np.quantile(cut, (0.25, 0.5, 0.75, 1), method="higher")
    return sorted({min(-(-int(width) // ROUND) * ROUND, max_length) for width in quantiles})


def plan_buckets(
    episodes: np.ndarray, lengths: np.ndarray, widths: list[int], batch_rows: int, seed: int, epoch: int
) -> EpochPlan:
    """Plans batches of `batch_rows` rows with one of the `episodes` [N] each; `seed` and `epoch` determine the order.

    `lengths`: of all episodes, in tokens. [E]. `widths`: of the buckets, ascending. Longer episodes are cut.
    """
    rng = np.random.default_rng((seed, epoch))
    order = rng.permutation(episodes)
    bucket = np.searchsorted(widths, np.minimum(lengths[order], widths[-1]))
    batches: list[tuple[int, list[int]]] = []
    for number, width in enumerate(widths):
        inside = order[bucket == number].tolist()
        batches += [(width, inside[start : start + batch_rows]) for start in range(0, len(inside), batch_rows)]
    shuffled = [batches[index] for index in rng.permutation(len(batches))]
    rows = [[[episode] for episode in batch] + [[]] * (batch_rows - len(batch)) for _, batch in shuffled]
    return EpochPlan(rows, [width for width, _ in shuffled])


def plan_packed(
    episodes: np.ndarray, lengths: np.ndarray, width: int, batch_rows: int, seed: int, epoch: int
) -> EpochPlan:
    """Plans batches of rows with several episodes each: an episode goes into the first open row with room for it.

    All rows have `width` tokens; longer episodes are cut, and fill a row. For the other arguments, see `plan_buckets`.
    """
    rng = np.random.default_rng((seed, epoch))
    rows: list[list[int]] = []
    filling: list[list[int]] = []
    room: list[int] = []
    for episode in rng.permutation(episodes).tolist():
        size = min(int(lengths[episode]), width)
        open_row = next((index for index, left in enumerate(room) if left >= size), None)
        if open_row is None:
            if len(filling) == OPEN_ROWS:  # the fullest is closed
                fullest = int(np.argmin(room))
                rows.append(filling.pop(fullest))
                room.pop(fullest)
            filling.append([])
            room.append(width)
            open_row = len(filling) - 1
        filling[open_row].append(episode)
        room[open_row] -= size
    rows += filling
    rows = [rows[index] for index in rng.permutation(len(rows))]
    rows += [[]] * (-len(rows) % batch_rows)
    batches = [rows[start : start + batch_rows] for start in range(0, len(rows), batch_rows)]
    return EpochPlan(batches, [width] * len(batches))


def make_batch(renderer: Renderer, plan: EpochPlan, step: int, share: slice = slice(None)) -> Rows:
    """One batch of a plan, or a host's `share` of its rows. [B, T] each"""
    rows, width = plan.rows[step][share], plan.widths[step]
    flat = np.array([episode for row in rows for episode in row], np.int64)
    if all(len(row) == 1 for row in rows):
        return renderer.rows(flat, width)
    single = renderer.rows(flat, width)
    packed = Rows(*(np.zeros((len(rows), width), array.dtype) for array in single))
    lengths = np.minimum(renderer.lengths[flat], width)
    index = 0
    for row, inside in enumerate(rows):
        start = 0
        for number, length in enumerate(lengths[index : index + len(inside)].tolist(), 1):
            for name, array in single._asdict().items():
                getattr(packed, name)[row, start : start + length] = array[index, :length]
            packed.segments[row, start : start + length] = number
            start, index = start + length, index + 1
    return packed


def planner(
    renderer: Renderer, episodes: np.ndarray, *, packed: bool, max_length: int, batch_rows: int, seed: int,
    in_order: bool = False,
) -> Callable[[int], EpochPlan]:  # fmt: skip
    """A function from an epoch to its plan, for ascending `episodes` [N]; for more arguments see `plan_buckets`.

    `packed`: whether a row holds several episodes. `max_length`: tokens of a row, and so of an episode. `in_order`:
    whether early episodes come in early batches; then only PART * `batch_rows` at a time are shuffled.
    """
    lengths = renderer.lengths
    widths = bucket_widths(lengths[episodes], max_length)

    def plan(part: np.ndarray, epoch: int) -> EpochPlan:
        if packed:
            return plan_packed(part, lengths, max_length, batch_rows, seed, epoch)
        return plan_buckets(part, lengths, widths, batch_rows, seed, epoch)

    def plan_in_order(epoch: int) -> EpochPlan:
        size = PART * batch_rows
        parts = [plan(episodes[start : start + size], epoch) for start in range(0, len(episodes), size)]
        rows, widths = (itertools.chain.from_iterable(lists) for lists in zip(*parts, strict=True))
        return EpochPlan([*rows], [*widths])

    return plan_in_order if in_order else lambda epoch: plan(episodes, epoch)
