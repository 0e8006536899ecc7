"""Questions about the neutral moment, for datasets whose pairs rarely show one: is a caption better than no message?

    annotations/<name>/neutral.json    {"captions": [numbers in the caption table], "prob": [P(better than nothing)]}

The reward of a moment without a message is the zero of the learnt reward (rewards/statistics.py), so training must see
it compared with others. A dataset without any such moment has no neutral moment, and gets no questions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np

from motif_jax.captions import CaptionTable, decode
from motif_jax.files import read_json, write_json

RARE = 0.01  # minimum share of the pairs that should compare a neutral moment with another one
MOST = 200  # captions to ask about
NEUTRAL = "neutral.json"

Ask = Callable[[list[tuple[str, str]]], np.ndarray]  # questions [K] -> P(second is better) [K], NaN if unknown


def captions_to_ask(table: CaptionTable, ids: np.ndarray) -> np.ndarray:
    """The most frequent captions with a message, if neutral moments are rare but exist; otherwise none. [K]

    `ids`: the caption of every step. [N, 2, L]
    """
    shown = np.asarray(table.messages.any(1))  # [U]
    neutral = ~shown[ids].any(2)  # [N, 2]
    if not neutral.any() or (neutral[:, 0] != neutral[:, 1]).mean() >= RARE:
        return np.zeros(0, np.int64)
    order = np.argsort(-table.counts, kind="stable")
    return order[shown[order]][: min(MOST, math.ceil(RARE * len(ids)))]


def ask_about(table: CaptionTable, captions: np.ndarray, ask: Ask, folder: Path) -> None:
    """Asks about captions in both orders, and writes the mean of both answers to `folder`."""
    texts = [decode(table.messages[number]) for number in captions.tolist()]
    answers = np.stack([ask([("", text) for text in texts]), 1 - ask([(text, "") for text in texts])])
    answered = ~np.isnan(answers).any(0)
    prob = answers.mean(0)[answered]
    write_json(folder / NEUTRAL, {"captions": captions[answered].tolist(), "prob": prob.round(6).tolist()})


def neutral_pairs(folder: Path, table: CaptionTable, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Makes about RARE * N pairs of a caption and the neutral moment, in proportion to the frequency of the captions.

    Args:
      folder: the annotation's; without `neutral.json` there are no pairs.
      table, ids: the dataset's captions. [N, 2, L]

    Returns:
      The caption of every step, [M, 2, L], and P(second is better), [M] float32.
    """
    length, file = ids.shape[2], folder / NEUTRAL
    if not file.exists():
        return np.zeros((0, 2, length), ids.dtype), np.zeros(0, np.float32)
    empty = np.flatnonzero(~table.messages.any(1))
    record = read_json(file)
    captions, prob = np.array(record["captions"], np.int64), np.array(record["prob"], np.float32)
    frequency = table.counts[captions] / max(table.counts[captions].sum(), 1)
    times = np.maximum(1, np.round(frequency * RARE * len(ids))).astype(np.int64)
    captions, prob = np.repeat(captions, times), np.repeat(prob, times)
    pairs = np.full((len(captions), 2, length), empty[0], ids.dtype)
    second = np.arange(len(captions)) % 2  # the side of the caption, in turn
    pairs[np.arange(len(captions)), second, 0] = captions
    return pairs, np.where(second == 1, prob, 1 - prob).astype(np.float32)
