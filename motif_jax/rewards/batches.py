"""Splits preference pairs into batches: the captions of each batch, and the index of the caption at every step.

Messages repeat, so a batch of 1,024 pairs has perhaps 150 different ones. The network runs once on each of these, and
its outputs are gathered for the pairs. For models that read more than the message, every step is a separate item.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

Array = Any  # a NumPy array, or a JAX array once it is on the devices
STEP = 16  # numbers of items are rounded up to this, so that few different shapes are compiled


class PairBatches(NamedTuple):
    """S batches for n devices: per batch, each device has K items and b pairs. Padding pairs have weight 0."""

    captions: Array  # [S, n, K] int32: the caption of each item
    extra: dict[str, Array]  # [S, n, K, ...]: further inputs of the model for each item
    shows: Array  # [S, n, b, 2, L] int32: the item that each step shows
    target: Array  # [S, n, b] float32: P(second is better)
    weight: Array  # [S, n, b] float32: 1, or 0 for padding
    sided: Array  # [S, n, b] float32: 1 where there is a preference


def without_padding(messages: np.ndarray) -> np.ndarray:
    """Leaves out trailing columns of zeros; the width W stays a multiple of 8. [U, 256] -> [U, W]"""
    width = max(1, int((messages != 0).any(0).nonzero()[0].max(initial=0)) + 1)
    return messages[:, : width + -width % 8]


def epoch_order(rows: np.ndarray, seed: int, epoch: int) -> np.ndarray:
    """The rows, shuffled for an epoch; the order depends on the seed and the epoch only."""
    return np.random.default_rng([seed, epoch]).permutation(rows)


def make_batches(
    rows: np.ndarray,
    ids: np.ndarray,
    target: np.ndarray,
    batch_size: int,
    num_devices: int,
    extra: Mapping[str, Callable[[np.ndarray], np.ndarray]] | None = None,
    least_items: int = 0,
    sided: np.ndarray | None = None,
) -> PairBatches:
    """Splits rows into batches.

    Args:
      rows: row numbers of the dataset, in the order of the epoch. [M]
      ids: the caption of every step of both moments. [N, 2, L]
      target: P(second is better) of every pair. [N]
      batch_size: pairs per batch, over all devices.
      num_devices: n; must divide the batch size.
      extra: functions by name from rows to arrays ([m] -> [m, 2, L, ...]); with these, repeated captions stay separate.
      least_items: minimum of K.
      sided: whether a pair has a preference; by default where the target is not 1/2. [N] bool
    """
    steps = -(-len(rows) // batch_size)
    flat = np.full(steps * batch_size, rows[0], np.int64)  # padded with a row that has a label
    flat[: len(rows)] = rows
    padded = flat.reshape(steps, num_devices, batch_size // num_devices)
    weight = (np.arange(padded.size) < len(rows)).astype(np.float32).reshape(padded.shape)
    shown = np.asarray(ids[flat]).reshape(steps * num_devices, -1)  # [S * n, b * 2 * L]
    if extra:
        items, shows = list(shown), np.broadcast_to(np.arange(shown.shape[1], dtype=np.int32), shown.shape)
    else:
        distinct = [np.unique(part, return_inverse=True) for part in shown]
        items, shows = [part for part, _ in distinct], np.stack([inverse for _, inverse in distinct])
    count = max(least_items, *map(len, items))
    count += -count % STEP if not extra else 0
    captions = np.zeros((len(items), count), np.int32)
    for row, part in zip(captions, items, strict=True):
        row[: len(part)] = part
    return PairBatches(
        captions.reshape(steps, num_devices, count),
        {
            name: get(flat).reshape(steps, num_devices, count, *get(padded[0, 0, :1]).shape[3:])
            for name, get in (extra or {}).items()
        },
        shows.astype(np.int32).reshape(*padded.shape, *ids.shape[1:]),
        target[padded].astype(np.float32),
        weight,
        (target != 0.5 if sided is None else sided)[padded] * weight,
    )
