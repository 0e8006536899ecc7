"""Statistics over the seeds of an experiment: intervals, comparisons, curves with bands.

The unit is the seed: an experiment's score with one seed is the mean over its episodes, and intervals are for the mean
over seeds. As in Agarwal et al., "Deep reinforcement learning at the edge of the statistical precipice" (arXiv
2108.13264): the interquartile mean, the bootstrap over seeds, and the probability of improvement.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from motif_jax.pages.blocks import Interval
from motif_jax.pages.charts import Band, Point

RESAMPLES = 5000
ENDS = (1 - 0.95) / 2, (1 + 0.95) / 2  # quantiles of all intervals
MOST_SEEDS = 10_000  # larger numbers are not reported


def interquartile_mean(scores: np.ndarray) -> float:
    """The mean of the middle half of all scores, with fractional weights at its edges. [N] -> number"""
    ordered = np.sort(scores)
    count = len(ordered)
    edges = np.arange(count + 1)
    # The part of each score's interval [i, i + 1] between a quarter and three quarters of all.
    weight = np.minimum(edges[1:], 0.75 * count) - np.maximum(edges[:-1], 0.25 * count)
    return float(np.average(ordered, weights=np.clip(weight, 0, None)))


def estimate(scores: np.ndarray, seed: int = 0) -> Interval:
    """The mean of the scores of all seeds, with its bootstrap interval. [S]"""
    mean = float(scores.mean())
    if len(scores) < 2:
        return Interval(mean)
    drawn = np.random.default_rng(seed).integers(len(scores), size=(RESAMPLES, len(scores)))
    return Interval(mean, *np.quantile(scores[drawn].mean(1), ENDS).tolist())


def improvement(ours: np.ndarray, theirs: np.ndarray) -> Interval:
    """The probability that a run of ours scores higher than one of theirs; equal scores count half."""
    share = _share_above(ours, theirs)
    if max(len(ours), len(theirs)) < 2:
        return Interval(share)
    rng = np.random.default_rng(0)
    drawn = [_share_above(rng.choice(ours, len(ours)), rng.choice(theirs, len(theirs))) for _ in range(RESAMPLES)]
    return Interval(share, *np.quantile(drawn, ENDS).tolist())


def seeds_needed(ours: np.ndarray, theirs: np.ndarray) -> int | None:
    """The number of seeds per side that would detect a difference of this size with a power of 80 %.

    For two means at the 5 % level: n = (z_level + z_power)^2 (s1^2 + s2^2) / difference^2, at least two. None if the
    means are equal, if both sides have fewer than two seeds, or if n exceeds MOST_SEEDS.
    """
    difference = float(ours.mean() - theirs.mean())
    if not (difference**2) or max(len(ours), len(theirs)) < 2:
        return None
    spread = sum(float(np.var(scores, ddof=1)) for scores in (ours, theirs) if len(scores) > 1)
    z_level, z_power = 1.959964, 0.841621  # quantiles of the normal distribution
    needed = (z_level + z_power) ** 2 * spread / difference**2
    return None if needed > MOST_SEEDS else max(math.ceil(needed), 2)


def band(curves: Sequence[Sequence[Point]], points: int = 100) -> tuple[list[Point], Band] | None:
    """The mean curve over seeds with its interval, on the steps that every seed has reached; else interpolated.

    None without curves, or if they have no steps in common. The band of a single seed is its curve.
    """
    first, last = max((curve[0][0] for curve in curves), default=1), min((curve[-1][0] for curve in curves), default=0)
    if first > last:
        return None
    grid = np.linspace(first, last, points if last > first else 1)
    stack = np.stack([np.interp(grid, *np.array(curve, float).T) for curve in curves])  # [S, P]
    middle = low = high = stack.mean(0)
    if len(stack) > 1:
        drawn = np.random.default_rng(0).integers(len(stack), size=(RESAMPLES // 5, len(stack)))
        low, high = np.quantile(stack[drawn].mean(1), ENDS, axis=0)
    steps = grid.tolist()
    return list(zip(steps, middle.tolist(), strict=True)), Band(steps, low.tolist(), high.tolist())


def _share_above(ours: np.ndarray, theirs: np.ndarray) -> float:
    return float(((ours[:, None] > theirs) + 0.5 * (ours[:, None] == theirs)).mean())
