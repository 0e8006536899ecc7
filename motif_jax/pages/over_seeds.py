"""Statistics over the seeds of an experiment: intervals, comparisons, curves with bands.

The unit is the seed: an experiment's score with one seed is the mean over its episodes, and intervals are for the mean
over seeds. As in Agarwal et al., "Deep reinforcement learning at the edge of the statistical precipice" (arXiv
2108.13264): the interquartile mean, the stratified bootstrap (which resamples seeds within each task), and the
probability of improvement.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

RESAMPLES = 5000
LEVEL = 0.95  # of all intervals
NORMAL_LEVEL, NORMAL_POWER = 1.959964, 0.841621  # quantiles of the normal distribution: 5 % two-sided, 80 % power
MOST_SEEDS = 10_000  # larger numbers are not reported

Scores = Sequence[np.ndarray]  # one array per task, with a score per seed. [S] each


class Estimate(NamedTuple):
    """A statistic over seeds and its 95 % interval; the interval is None with a single seed in each task."""

    value: float
    low: float | None
    high: float | None


def interquartile_mean(scores: np.ndarray) -> float:
    """The mean of the middle half of all scores, with fractional weights at its edges. [N] -> number"""
    ordered = np.sort(np.asarray(scores, float).ravel())
    count = len(ordered)
    edges = np.arange(count + 1)
    # The part of each score's interval [i, i + 1] between a quarter and three quarters of all.
    weight = np.minimum(edges[1:], 0.75 * count) - np.maximum(edges[:-1], 0.25 * count)
    return float(np.average(ordered, weights=np.clip(weight, 0, None)))


def estimate(scores: Scores, seed: int = 0) -> Estimate:
    """The mean of the scores of all tasks and seeds, with its stratified bootstrap interval."""
    exponent = int(large_exponents(np.concatenate([np.asarray(task, float) for task in scores])))
    tasks = [np.ldexp(np.asarray(task, float), -exponent) for task in scores]
    value = math.ldexp(float(np.concatenate(tasks).mean()), exponent)
    if max(len(task) for task in tasks) < 2:
        return Estimate(value, None, None)
    rng = np.random.default_rng(seed)
    drawn = [float(np.concatenate([_again(task, rng) for task in tasks]).mean()) for _ in range(RESAMPLES)]
    return Estimate(value, *(math.ldexp(end, exponent) for end in _ends(drawn)))


def large_exponents(values: np.ndarray) -> np.ndarray:
    """Per column, the exponent of a power of two by which to divide, so that sums stay finite; usually 0."""
    exponents = np.frexp(np.abs(values).max(0, initial=0.0))[1]
    return np.where(exponents > 900, exponents, 0)


def improvement(ours: np.ndarray, theirs: np.ndarray) -> Estimate:
    """The probability that a run of ours scores higher than one of theirs; equal scores count half."""
    ours, theirs = np.asarray(ours, float), np.asarray(theirs, float)
    value = _share_above(ours, theirs)
    if max(len(ours), len(theirs)) < 2:
        return Estimate(value, None, None)
    rng = np.random.default_rng(0)
    drawn = [_share_above(_again(ours, rng), _again(theirs, rng)) for _ in range(RESAMPLES)]
    return Estimate(value, *_ends(drawn))


def seeds_needed(ours: np.ndarray, theirs: np.ndarray) -> int | None:
    """The number of seeds per side that would detect a difference of this size with a power of 80 %.

    For two means at the 5 % level: n = (z_level + z_power)^2 (s1^2 + s2^2) / difference^2, at least two. None if the
    means are equal, if both sides have fewer than two seeds, or if n exceeds MOST_SEEDS.
    """
    ours, theirs = np.asarray(ours, float), np.asarray(theirs, float)
    difference = float(ours.mean() - theirs.mean())
    if not (difference**2) or max(len(ours), len(theirs)) < 2:
        return None
    spread = sum(float(np.var(scores, ddof=1)) for scores in (ours, theirs) if len(scores) > 1)
    needed = (NORMAL_LEVEL + NORMAL_POWER) ** 2 * spread / difference**2
    return None if needed > MOST_SEEDS else max(math.ceil(needed), 2)


class SeedBand(NamedTuple):
    """A curve's mean over seeds with its interval, at the same steps for all."""

    steps: np.ndarray  # [P]
    mean: np.ndarray  # [P]
    low: np.ndarray  # [P]; equals the mean for a single seed
    high: np.ndarray  # [P]


def band(curves: Sequence[tuple[np.ndarray, np.ndarray]], points: int = 100, seed: int = 0) -> SeedBand | None:
    """The mean curve over seeds, on the steps that every seed has reached.

    NaN values are left out; between steps, values are interpolated. `seed`: of the bootstrap.

    Returns:
      The band; None if a seed has no values, or if the seeds have no steps in common.
    """
    finite = []
    for steps, values in curves:
        values = np.asarray(values, float)
        mask = np.isfinite(values)
        finite.append((np.asarray(steps, float)[mask], values[mask]))
    if not finite or any(not len(steps) for steps, _ in finite):
        return None
    first, last = max(steps[0] for steps, _ in finite), min(steps[-1] for steps, _ in finite)
    if first > last:
        return None
    grid = np.linspace(first, last, points if last > first else 1)
    stack = np.stack([np.interp(grid, steps, values) for steps, values in finite])  # [S, P]
    middle = stack.mean(0)
    if len(stack) < 2:
        return SeedBand(grid, middle, middle, middle)
    drawn = np.random.default_rng(seed).integers(len(stack), size=(RESAMPLES // 5, len(stack)))
    low, high = np.quantile(stack[drawn].mean(1), ((1 - LEVEL) / 2, (1 + LEVEL) / 2), axis=0)
    return SeedBand(grid, middle, low, high)


def _again(scores: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return scores[rng.integers(len(scores), size=len(scores))]


def _ends(drawn: Sequence[float]) -> tuple[float, float]:
    low, high = np.quantile(drawn, ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    return float(low), float(high)


def _share_above(ours: np.ndarray, theirs: np.ndarray) -> float:
    above = ours[:, None] > theirs
    equal = ours[:, None] == theirs
    return float((above + 0.5 * equal).mean())
