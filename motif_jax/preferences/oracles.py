"""Annotators that compare the game's numbers (score, rewards) instead of captions, as in the original; and chance."""

from __future__ import annotations

import numpy as np

from motif_jax.preferences.store import PairDataset
from motif_jax.structs import UserError

NEEDS = {"score": "info/score", "return": "data/rewards", "random": ""}


def check_oracle(name: str, dataset: PairDataset) -> None:
    """Raises UserError if the dataset lacks the numbers that the annotator compares."""
    folder, _, key = NEEDS[name].partition("/")
    if key and key not in (dataset.info if folder == "info" else dataset.data):
        raise UserError(
            f"dataset {str(dataset.path)!r} has no {NEEDS[name]}.npy, which the annotator {name!r} compares "
            "(--config.annotate.backend)"
        )


def ask_oracle(name: str, dataset: PairDataset, rows: np.ndarray, seed: int) -> np.ndarray:
    """P(second is better): 0, 1/2 or 1. [M] float32

    Args:
      name: "score" (of the episode that a moment is from), "return" (rewards summed over the moment), or "random".
      rows: the pairs to compare, ascending. [M]
      seed: of "random"; a row's verdict depends on the seed alone.
    """
    if name == "random":
        return np.random.default_rng(seed).integers(2, size=len(dataset))[rows].astype(np.float32)
    if name == "score":
        worth = dataset.info["score"][rows]  # [M, 2]
    else:
        worth = dataset.data["rewards"][rows].sum(-1, dtype=np.float64)  # [M, 2, L] -> [M, 2]
    return np.where(worth[:, 0] == worth[:, 1], 0.5, worth[:, 1] > worth[:, 0]).astype(np.float32)
