"""How faithful a learnt reward is to the worth that rules give to captions (envs/rules.py), in NumPy.

Preferences without degrees are an order, so a reward that is learnt from them may pay a small worth nearly as much as a
large one. With r0 the reward of the neutral moment, which is worth 0, and r*, w* reward and worth of the best captions:

    share = (r - r0) / (r* - r0)        inflation = share / (w / w*), 1 where the reward is in proportion to the worth
"""

from __future__ import annotations

from typing import Any

import numpy as np

LEAST_TIMES = 20  # appearances in training before a worth can be the best one


def compare_with_worth(
    values: np.ndarray, worth: np.ndarray, counts: np.ndarray, held_out: np.ndarray, neutral: float | None
) -> dict[str, Any]:
    """Compares rewards with worths, on captions that training has not seen.

    Args:
      values: raw reward of each distinct caption. [U]
      worth: the worth of each caption. [U]
      counts: how often training shows each caption. [U]
      held_out: the captions to compare; those that training has seen are left out. [U] bool
      neutral: raw reward of the neutral moment; None: it is not known, and neither are shares and inflation.

    Returns:
      `captions`, their number; `linear` and `rank`, correlations; `inflation`, the median over captions with a worth
      between 0 and the best; `levels`, from the lowest worth to the highest: the mean share of the captions with it.
    """
    held_out = held_out & (counts == 0)
    values, given = values.astype(np.float64), worth[held_out]
    comparison: dict[str, Any] = {
        "captions": int(held_out.sum()),
        "linear": correlation(values[held_out], given),
        "rank": correlation(ranks(values[held_out]), ranks(given)),
        "inflation": float("nan"),
        "levels": [],
    }
    best = best_worth(worth, counts)
    if neutral is None or best is None:
        return comparison
    top = (worth == best) & (counts > 0)
    span = np.average(values[top], weights=counts[top]) - neutral
    if span <= 0:
        return comparison
    shares = (values[held_out] - neutral) / span
    small = (given > 0) & (given < best)
    if small.any():
        comparison["inflation"] = float(np.median(shares[small] / (given[small] / best)))
    comparison["levels"] = [
        {
            "worth": float(level),
            "due": float(level / best),
            "share": float(shares[at].mean()),
            "captions": int(at.sum()),
        }
        for level in np.unique(given)
        for at in (given == level,)
    ]
    return comparison


def best_worth(worth: np.ndarray, counts: np.ndarray) -> float | None:
    """The highest positive worth whose captions training has shown LEAST_TIMES; None if there is none."""
    levels, places = np.unique(worth, return_inverse=True)
    often = np.bincount(places, weights=counts, minlength=len(levels)) >= LEAST_TIMES
    known = levels[often & (levels > 0)]
    return float(known[-1]) if len(known) else None


def correlation(one: np.ndarray, other: np.ndarray) -> float:
    """Pearson's correlation; NaN if either is constant. [K], [K]"""
    if len(one) < 2 or not np.ptp(one) or not np.ptp(other):
        return float("nan")
    return float(np.corrcoef(one, other)[0, 1])


def ranks(values: np.ndarray) -> np.ndarray:
    """The rank of each value from 1; equal values share their mean rank. [K] -> [K]"""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[places]
