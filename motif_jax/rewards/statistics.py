"""Statistics of a reward over the data: mean, variance, quantiles, agreement with preferences and rules. In NumPy.

Here is also what a reward of another program has.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from motif_jax.config.table import LARGEST
from motif_jax.names import REWARD_READERS, import_named
from motif_jax.structs import UserError

Z95 = 1.96  # 95 % of a normal distribution lie within this number of standard deviations
LEAST_TIMES = 20  # appearances in training before a worth or a reward can be the best one
LEVELS = tuple(round(0.05 * number, 2) for number in range(1, 20))
IMPORT_FLAG = "--config.reward.import_from"


class RewardStatistics(NamedTuple):
    """Mean and variance of a reward, which normalise it, and its quantiles."""

    mean: float  # over all moments of the training pairs, so weighted by frequency
    variance: float
    # Of the normalised reward over the distinct captions, each counted once; by level. With an anchor at least 0, as
    # they are thresholds, and captions below the neutral moment are not paid.
    quantiles: dict[str, float]
    anchor: float | None = None  # raw reward of the neutral moment, if it is normalised to 0

    def normalise(self, raw: np.ndarray) -> np.ndarray:
        """Scales raw rewards to variance 1 over the training data, and shifts `zero` to 0."""
        return (raw - self.zero) / max(self.variance, 1e-12) ** 0.5

    @property
    def zero(self) -> float:
        """The raw reward that is normalised to 0: the anchor, or else the mean."""
        return self.mean if self.anchor is None else self.anchor

    def quantile(self, level: float) -> float:
        """The normalised reward below which this share of the distinct captions lies (see `quantiles`).

        Interpolates linearly between the known levels; beyond the outermost level, returns its quantile.
        """
        levels = np.array(sorted(map(float, self.quantiles)))
        return float(np.interp(level, levels, [self.quantiles[f"{known:.2f}"] for known in levels]))

    def record(self) -> dict[str, Any]:
        """The fields by name, for a checkpoint; a missing anchor is left out."""
        return {name: value for name, value in self._asdict().items() if value is not None}


def read_statistics(record: Mapping[str, Any], source: Path) -> RewardStatistics:
    """Reads the statistics of the checkpoint `source`; raises UserError if they are not finite."""
    statistics = RewardStatistics(**record)
    numbers = [statistics.mean, statistics.variance, statistics.zero, *statistics.quantiles.values()]
    if not all(abs(number) <= LARGEST for number in numbers):
        raise UserError(f"the statistics in {str(source)!r} are not finite numbers")
    return statistics


def summarise_values(
    values: np.ndarray, counts: np.ndarray, decimals: int | None = None, anchor: float | None = None
) -> RewardStatistics:
    """The statistics of a reward from its raw `values` on all captions, or on moments with counts of one. [U]

    `counts`: how often each occurs in the training pairs; 0 excludes it. [U] `decimals`: of quantiles. `anchor`: raw
    reward of the neutral moment, if that is to be 0.
    """
    seen = counts > 0
    values, counts = values[seen].astype(np.float64), counts[seen].astype(np.float64)
    mean = float(np.average(values, weights=counts))
    variance = float(np.average((values - mean) ** 2, weights=counts))
    statistics = RewardStatistics(mean, variance, {}, anchor)
    quantiles = np.quantile(statistics.normalise(values), LEVELS)
    if decimals is not None:
        quantiles = np.round(quantiles, decimals)
    if anchor is not None:
        quantiles = np.maximum(quantiles, 0.0)
    return statistics._replace(quantiles={f"{q:.2f}": float(z) for q, z in zip(LEVELS, quantiles, strict=True)})


def compare(rewards: np.ndarray, target: np.ndarray, sided: np.ndarray | None = None) -> dict[str, float]:
    """Agreement of the mean rewards of both moments [M, 2] with preferences, `target` = P(second is better) [M].

    `sided`: whether there is a preference; by default where the target is not 1/2. [M] bool

    Returns `loss` over all pairs; `accuracy` over those with a preference, NaN without any; `sided`, their number.
    """
    difference = (rewards[:, 1] - rewards[:, 0]).astype(np.float64)
    loss = np.logaddexp(0, -difference) * target + np.logaddexp(0, difference) * (1 - target)
    sided = target != 0.5 if sided is None else sided
    right = np.where(difference == 0, 0.5, (difference > 0) == (target > 0.5))  # equal rewards prefer neither
    return {
        "loss": float(loss.mean()) if len(loss) else float("nan"),
        "accuracy": float(right[sided].mean()) if sided.any() else float("nan"),
        "sided": int(sided.sum()),
    }


def share_interval(share: float, number: float) -> tuple[float, float]:
    """Wilson's 95 % interval of a share that was found in `number` independent trials."""
    scale = 1 + Z95**2 / number
    middle = (share + Z95**2 / (2 * number)) / scale
    half = Z95 / scale * (share * (1 - share) / number + Z95**2 / (4 * number**2)) ** 0.5
    return max(middle - half, 0.0), min(middle + half, 1.0)


def independent_questions(ids: np.ndarray) -> tuple[int, float]:
    """The number of different questions in the pairs, and the effective number of independent trials (Kish).

    A reward gives pairs with the same two captions the same answer, so they are one trial. `ids`: captions of each step
    of both moments of each pair. [M, 2, L]
    """
    _, moments = np.unique(ids.reshape(-1, ids.shape[2]), axis=0, return_inverse=True)
    pairs = np.sort(moments.reshape(-1, 2), axis=1)  # the order within a pair does not matter
    counts = np.unique(pairs, axis=0, return_counts=True)[1].astype(np.float64)
    return len(counts), float(counts.sum() ** 2 / (counts**2).sum())


def calibration(rewards: np.ndarray, target: np.ndarray) -> list[dict[str, Any]]:
    """Mean predicted and annotated P(second is better), in the non-empty ones of ten bins of equal width."""
    predicted = 1 / (1 + np.exp((rewards[:, 0] - rewards[:, 1]).astype(np.float64)))
    bins = np.minimum((predicted * 10).astype(int), 9)
    return [
        {"predicted": float(predicted[at].mean()), "stated": float(target[at].mean()), "pairs": int(at.sum())}
        for at in (bins == number for number in range(10))
        if at.any()
    ]


def compare_with_worth(
    values: np.ndarray, worth: np.ndarray, counts: np.ndarray, held_out: np.ndarray, neutral: float | None
) -> dict[str, Any]:
    """Compares rewards with the worth that rules give to captions (envs/texts.py), on captions not seen in training.

    Preferences without degrees are an order, so a reward that is learnt from them may pay a small worth nearly as much
    as a large one. With r0 the reward of the neutral moment, which is worth 0, and r*, w* of the best captions:

        share = (r - r0) / (r* - r0)      inflation = share / (w / w*), 1 where the reward is in proportion to the worth

    `values`, `worth`, `counts`: raw reward, worth and appearances in training of each distinct caption. [U] `held_out`:
    the captions to compare; those that training has seen are left out. [U] bool `neutral`: raw reward of the neutral
    moment; None: unknown, as are then shares and inflation. Returns `captions`, their number; `linear` and `rank`,
    correlations; `inflation`, the median over captions with a worth between 0 and the best; `levels`, from the lowest
    worth to the highest: the mean share of the captions with it.
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
    levels, index = np.unique(worth, return_inverse=True)
    often = np.bincount(index, weights=counts, minlength=len(levels)) >= LEAST_TIMES
    good = levels[often & (levels > 0)].tolist()  # worths that training has shown often
    if neutral is None or not good:
        return comparison
    best = good[-1]
    top = (worth == best) & (counts > 0)
    span = np.average(values[top], weights=counts[top]) - neutral
    if span <= 0:
        return comparison
    shares = (values[held_out] - neutral) / span
    small = (given > 0) & (given < best)
    if small.any():
        comparison["inflation"] = float(np.median(shares[small] / (given[small] / best)))
    for level in np.unique(given).tolist():
        at = given == level
        row = {"worth": level, "due": level / best, "share": float(shares[at].mean()), "captions": int(at.sum())}
        comparison["levels"].append(row)
    return comparison


def correlation(one: np.ndarray, other: np.ndarray) -> float:
    """Pearson's correlation; NaN if either is constant. [K], [K]"""
    if len(one) < 2 or not np.ptp(one) or not np.ptp(other):
        return float("nan")
    return float(np.corrcoef(one, other)[0, 1])


def ranks(values: np.ndarray) -> np.ndarray:
    """The rank of each value from 1; equal values share their mean rank. [K] -> [K]"""
    _, index, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[index]


class RunningStats(NamedTuple):
    """Running mean and variance, merged batch by batch (Chan et al. 1983): numbers, or float32 arrays on the devices.

        share    = n_batch / n_all
        mean     = mean + share * (mean_batch - mean)
        variance = variance + share * (variance_batch - variance) + share * (1 - share) * (mean_batch - mean)^2

    With shares instead of sums no number grows without bound, so float32 suffices for any number of steps.
    """

    number: Any = 0.0  # of values
    mean: Any = 0.0  # [...]
    variance: Any = 0.0  # [...], divided by the number

    @classmethod
    def of(cls, values: np.ndarray) -> RunningStats:
        if not values.size:
            return cls()
        return cls(float(values.size), float(values.mean(dtype=np.float64)), float(values.var(dtype=np.float64)))

    def merge(self, other: RunningStats) -> RunningStats:
        """Mean and variance of the values of both together."""
        number = self.number + other.number
        if isinstance(number, float) and not number:
            return self
        share, shift = other.number / number, other.mean - self.mean
        variance = self.variance + share * (other.variance - self.variance) + share * (1 - share) * shift**2
        return RunningStats(number, self.mean + share * shift, variance)

    def normalise(self, values: np.ndarray) -> np.ndarray:
        """Scales to mean 0 and variance 1 over all values so far; zeros until two of these differ."""
        if not self.variance > 0:
            return np.zeros_like(values)
        return (values - self.mean) / self.variance**0.5


# ---- rewards of other programs


class ImportedReward(NamedTuple):
    """A reward that another program has learnt."""

    params: Mapping[tuple[str, ...], np.ndarray]  # of `make_reward_model`, by their paths
    network: Mapping[str, Any]  # the arguments of `make_reward_model`
    epoch: int  # of its training, from 0
    statistics: RewardStatistics
    doubt: str  # a sentence about what may be wrong; "" for nothing


class RewardFile(Protocol):
    """A file with a reward, in one format (`Plugin.reward_readers`)."""

    def check(self) -> None: ...  # raises UserError if it cannot be read; before anything starts
    def read(self) -> ImportedReward: ...


def find_reward_file(path: Path) -> RewardFile:
    """The file by the first reader that knows its format; raises UserError without one."""
    found = filter(None, (import_named(reader)(path) for reader in REWARD_READERS.values()))
    for file in found:
        return file
    known = ", ".join(REWARD_READERS) or "none"
    raise UserError(f"{str(path)!r} has no format of rewards that is read here: {known} ({IMPORT_FLAG})")
