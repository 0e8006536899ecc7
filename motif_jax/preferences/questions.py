"""Maps pairs of moments to questions; pairs with the same two captions share a question.

A caption is the text of a moment: one message per line, without empty ones, and with equal consecutive ones written
once as `text (xN)`; optionally each line ends with the bottom line of the screen. Pairs with two equal captions are
ties and have no question. All pairs with the same two captions, in either order, have the same question.

Memory holds a number per pair and per question, and each distinct message once; captions are built on request.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from motif_jax.captions import CaptionTable, decode
from motif_jax.files import read_json, write_json
from motif_jax.preferences.store import PairDataset
from motif_jax.structs import UserError

WITH_BOTTOM_LINE = "msg_minbl"
KINDS = ("msg", WITH_BOTTOM_LINE)  # messages alone; messages and the bottom line
DEPTH, GOLD, HP, MAX_HP, LEVEL, HUNGER = 12, 13, 10, 11, 18, 21  # indices in NLE's blstats
HUNGER_WORDS = ("Satiated", "", "Hungry", "Weak", "Fainting", "Fainted ", "Starved")  # a space as published
BOTTOM_LINE = 2  # version of the text of `status`; version 1 had no spaces at its end
ROWS = 4096  # pairs whose captions are in memory at the same time


class Questions:
    """The distinct questions of a dataset, numbered so that those with the same first caption are neighbours.

    of_pair  [N] int64: the pair's question; -1 if its captions are equal
    turned   [N] bool: the pair shows the question's captions in the other order
    counts   [Q] int64: the number of pairs per question
    dataset  the pairs
    """

    def __init__(self, dataset: PairDataset, kind: str):
        """Reads every caption once; `kind` is one of KINDS. Raises UserError if the dataset has no bottom lines."""
        if kind == WITH_BOTTOM_LINE and "blstats" not in dataset.data:
            raise UserError(
                "the dataset has no 'blstats', which moments of NetHack have: choose msg (--config.annotate.captions)"
            )
        self.dataset, self._kind = dataset, kind
        table, ids = dataset.captions()
        self._ids = np.asarray(ids)  # indexed many times, which is slow in a memory map
        self._texts = [decode(message) for message in table.messages]
        if kind == "msg" and dataset.length == 1:
            digests = np.array([_digest(text) for text in self._texts], np.uint64)[np.asarray(self._ids).reshape(-1)]
        else:
            parts = (self._captions_of(slice(start, start + ROWS)) for start in range(0, len(dataset), ROWS))
            digests = np.concatenate([np.array([_digest(text) for text in part], np.uint64) for part in parts])
        # The digest of each caption, [C, 2], and a moment that shows it, [C]. A caption's number is the rank of its
        # digest, which depends on the texts alone.
        self._captions, self._moments, numbers = np.unique(digests, axis=0, return_index=True, return_inverse=True)
        pairs = numbers.reshape(-1, 2)
        differ = pairs[:, 0] != pairs[:, 1]
        codes = pairs.min(1) * len(self._captions) + pairs.max(1)
        self._codes, inverse, self.counts = np.unique(codes[differ], return_inverse=True, return_counts=True)
        self.of_pair = np.full(len(pairs), -1, np.int64)
        self.of_pair[differ] = inverse
        self.turned = pairs[:, 0] > pairs[:, 1]

    def __len__(self) -> int:
        return len(self._codes)

    def text(self, number: int) -> tuple[str, str]:
        first, second = divmod(int(self._codes[number]), len(self._captions))
        return self._caption(self._moments[first]), self._caption(self._moments[second])

    def labels(self, prob: np.ndarray) -> np.ndarray:
        """P(second is better) of each question, in its own order, from that of pairs; NaN: unknown. [N] -> [Q]"""
        labels, asking = np.full(len(self), np.nan, np.float32), self.of_pair >= 0
        labels[self.of_pair[asking]] = np.where(self.turned, 1 - prob, prob)[asking]
        return labels

    def rows(self) -> np.ndarray:
        """The first pair that asks each question. [Q]"""
        numbers, rows = np.unique(self.of_pair, return_index=True)
        return rows[numbers >= 0]

    def sample(self, share: float) -> np.ndarray:
        """Selects about this share of the questions, by a hash of their captions. [Q] bool"""
        first, second = np.divmod(self._codes, max(len(self._captions), 1))
        drawn = (self._captions[first, 1] ^ self._captions[second, 0]) % np.uint64(10_000)
        return drawn < share * 10_000

    def _caption(self, moment: int) -> str:
        pair, side = divmod(int(moment), 2)
        return self._captions_of(slice(pair, pair + 1))[side]

    def _captions_of(self, rows: slice) -> list[str]:
        texts, length = self._texts, self.dataset.length
        ids = self._ids[rows].reshape(-1, length).tolist()
        if self._kind == "msg":
            return [caption([texts[number] for number in moment]) for moment in ids]
        status = self.dataset.data["blstats"][rows].reshape(len(ids), length, -1).tolist()
        return [caption([texts[number] for number in moment], lines) for moment, lines in zip(ids, status, strict=True)]


def caption(messages: Sequence[str], blstats: Sequence[Sequence[int]] | None = None) -> str:
    """The caption of a moment, from the message of each step; with `blstats`, each line ends with its step's status."""
    lines, step = [], 0
    for message, run in itertools.groupby(messages):
        count = len(list(run))
        if message:
            text = message if count == 1 else f"{message} (x{count})"
            lines.append(text if blstats is None else f"{text} {status(blstats[step])}")
        step += count
    if not lines and blstats is not None:
        lines = [status(blstats[0])]
    return "\n".join(lines)


def status(blstats: Sequence[int]) -> str:
    """Depth, gold, hit points, level and hunger as in the bottom line; may end in a space, as published."""
    hunger = HUNGER_WORDS[blstats[HUNGER]] if 0 <= blstats[HUNGER] < len(HUNGER_WORDS) else ""
    return f"Dlvl:{blstats[DEPTH]} $:{blstats[GOLD]} HP:{blstats[HP]} ({blstats[MAX_HP]}) Xp:{blstats[LEVEL]} {hunger}"


def _digest(text: str) -> tuple[int, int]:
    data = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    return int.from_bytes(data[:8], "big"), int.from_bytes(data[8:], "big")


# Questions about the neutral moment, for datasets whose pairs rarely show one: is a caption better than no message?
#
#     annotations/<name>/neutral.json    {"captions": [numbers in the caption table], "prob": [P(better than nothing)]}
#
# The reward of a moment without a message is the zero of the learnt reward (rewards/statistics.py), so training must
# see it compared with others. A dataset without any such moment has no neutral moment, and gets no questions.

RARE = 0.01  # minimum share of the pairs that should compare a neutral moment with another one
MOST = 200  # captions to ask about
NEUTRAL = "neutral.json"


def captions_to_ask(table: CaptionTable, ids: np.ndarray) -> np.ndarray:
    """The most frequent captions with a message, if neutral moments are rare but exist. `ids`: [N, 2, L]"""
    shown = np.asarray(table.messages.any(1))  # [U]
    neutral = ~shown[ids].any(2)  # [N, 2]
    if not neutral.any() or (neutral[:, 0] != neutral[:, 1]).mean() >= RARE:
        return np.zeros(0, np.int64)
    order = np.argsort(-table.counts, kind="stable")
    return order[shown[order]][: min(MOST, math.ceil(RARE * len(ids)))]


def write_neutral(folder: Path, captions: np.ndarray, answers: np.ndarray) -> None:
    """Writes P(better than nothing) of captions [K], the mean of their two `answers`. [K, 2]"""
    answered = ~np.isnan(answers).any(1)
    prob = answers[answered].mean(1).round(6)
    write_json(folder / NEUTRAL, {"captions": captions[answered].tolist(), "prob": prob.tolist()})


def neutral_pairs(folder: Path, table: CaptionTable, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Makes about RARE * N pairs of a caption and the neutral moment, in proportion to the frequency of the captions.

    `folder`: the annotation's; without `neutral.json` there are no pairs. `table`, `ids`: the dataset's captions
    [N, 2, L]. Returns the caption of every step, [M, 2, L], and P(second is better), [M] float32.
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
