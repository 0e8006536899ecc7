"""Cuts episodes into stretches of L steps (moments), and pairs them.

An episode of n steps gives n // L stretches, whose starts are drawn without replacement. All stretches of all episodes
are shuffled, and consecutive ones are paired. The shuffle is drawn before any game is played: stretch i goes to place
`places[i]`, where `places` is a random permutation of all 2N places. So moments can be written as soon as they are
played, and memory stays small. The dataset depends on the seed alone: not on the number of workers, their speed, or
interruptions.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from motif_jax.structs import EpisodeInfo

PLACES_STREAM, STARTS_STREAM = 0, 1


class FinishedEpisode(NamedTuple):
    """One finished episode: its summary, and the data of each step after its action."""

    info: EpisodeInfo
    steps: dict[str, np.ndarray]  # [n, ...] each; includes "message"


def places(seed: int, num_pairs: int) -> np.ndarray:
    """The place of each stretch in the dataset: stretch i is side p % 2 of pair p // 2, p = places[i]. [2N] int64"""
    return np.random.default_rng((seed, PLACES_STREAM)).permutation(2 * num_pairs)


def stretch_starts(episode: FinishedEpisode, length: int, seed: int, keep_empty: float) -> np.ndarray:
    """The first steps of the kept stretches, in random order. [k] int64

    `keep_empty`: the share of stretches without messages to keep.
    """
    steps = len(episode.steps["message"])
    if steps < length:
        return np.zeros(0, np.int64)
    rng = np.random.default_rng((seed, STARTS_STREAM, episode.info.episode))
    starts = rng.permutation(steps - length + 1)[: steps // length]
    if keep_empty < 1:
        silent = ~episode.steps["message"].any(-1)  # [n]
        silent_before = np.concatenate([[0], np.cumsum(silent)])
        empty = silent_before[starts + length] - silent_before[starts] == length
        starts = starts[~empty | (rng.random(len(starts)) < keep_empty)]
    return starts


def cut(array: np.ndarray, starts: np.ndarray, length: int) -> np.ndarray:
    """Cuts stretches out of an array over time. [n, ...] -> [k, L, ...]"""
    return array[starts[:, None] + np.arange(length)]
