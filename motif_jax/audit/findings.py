"""Findings: the suspicions of all checks with their p-values, and which of them are reported (Holm).

Each check tests the hypothesis that a quantity does not pass its threshold. Over all suspicions of all checks together,
Holm's procedure keeps the chance of any false alarm at LEVEL. Findings come worst first: by the share of the pay, of
the episodes or of the answers that they touch.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

LEVEL = 0.05  # chance of a false alarm in a whole audit
EXACT = 2000  # trials up to which binomial tails are summed; beyond, the normal distribution is close enough
TESTED = 8  # candidates of a check that become suspicions


class Suspicion(NamedTuple):
    """One thing that may be wrong."""

    sentence: str  # with a number, without a full stop
    advice: str  # what to try, with a flag
    size: float  # the share that it touches, 0 to 1
    p: float  # of what was seen, if the threshold is not passed; of a finding, adjusted for the number of suspicions
    check: str = ""  # that found it


class Check(NamedTuple):
    """The result of one check."""

    name: str
    scope: str = ""  # the data that was examined, in a few words
    suspicions: tuple[Suspicion, ...] = ()
    skipped: str = ""  # the reason why it was not made; "": it was made
    tested: int = 0  # candidates, of which the suspicions are the worst; 0: all are suspicions

    def advised(self, advice: str) -> Check:
        """The check with other advice."""
        return self._replace(suspicions=tuple(one._replace(advice=advice) for one in self.suspicions))


class Findings(NamedTuple):
    """The result of an audit."""

    found: list[Suspicion]  # worst first
    clear: list[Check]  # checks that found nothing
    skipped: list[Check]
    paid: Sequence[dict[str, Any]]  # see `pay.most_paid`; a `worth` of NaN: unknown
    neutral: float = 0.0  # in flight: the share of the pay for captions that the judge calls neutral or worse


def conclude(checks: Iterable[Check], paid: Sequence[dict[str, Any]] = (), neutral: float = 0.0) -> Findings:
    """The findings of all checks together."""
    checks = list(checks)
    suspicions = [one._replace(check=check.name) for check in checks for one in check.suspicions]
    adjusted = holm([one.p for one in suspicions], sum(max(one.tested, len(one.suspicions)) for one in checks))
    findings = [one._replace(p=p) for one, p in zip(suspicions, adjusted, strict=True) if p <= LEVEL]
    findings.sort(key=lambda one: (-one.size, one.check, one.sentence))
    named = {one.check for one in findings}
    clear = [check for check in checks if not check.skipped and check.name not in named]
    return Findings(findings, clear, [check for check in checks if check.skipped], paid, neutral)


def holm(ps: list[float], count: int) -> list[float]:
    """Holm's adjusted p-values of the lowest of `count` p-values, in the same order: those up to LEVEL are rejected."""
    order = sorted(range(len(ps)), key=ps.__getitem__)
    adjusted, largest = [0.0] * len(ps), 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (count - rank) * ps[index]))
        adjusted[index] = largest
    return adjusted


def normal_tail(deviations: float) -> float:
    """The chance of a standard normal value above this."""
    return 0.5 * math.erfc(deviations / 2**0.5)


def binomial_tail(hits: float, trials: float, share: float) -> float:
    """The chance of at least this many hits, if each of the trials is a hit with the chance `share`, above 0.

    Fractional numbers, as of effective trials, are rounded so that the chance is not underestimated.
    """
    hits, trials = math.floor(hits), math.ceil(trials)
    if hits <= 0:
        return 1.0
    if trials > EXACT:
        return normal_tail((hits - 0.5 - trials * share) / (trials * share * (1 - share)) ** 0.5)
    log_hit, log_miss = math.log(share), math.log1p(-share)
    log_factorial = math.lgamma(trials + 1)
    logs = (
        log_factorial - math.lgamma(k + 1) - math.lgamma(trials - k + 1) + k * log_hit + (trials - k) * log_miss
        for k in range(hits, trials + 1)
    )
    return min(math.fsum(map(math.exp, logs)), 1.0)


def largest(sizes: np.ndarray, candidates: np.ndarray) -> list[int]:
    """The numbers of the TESTED candidates with the largest sizes, the largest first. [G], [G] bool"""
    order = np.argsort(-np.where(candidates, sizes, -1), kind="stable")[:TESTED]
    return order[candidates[order]].tolist()


def percent(share: float, low: float | None = None, high: float | None = None) -> str:
    """A share in percent, with its interval."""
    ends = "" if low is None or high is None else f" [{100 * max(low, 0):.0f}, {100 * min(high, 1):.0f}]"
    return f"{100 * share:.0f} %{ends}"


def quoted(text: str, longest: int = 60) -> str:
    """A caption or the name of a group in a sentence: one line, cut."""
    line = " ".join(text.split())
    return repr(line if len(line) <= longest else line[: longest - 3] + "...")


# Groups of captions: those with the same rules, and those that differ only in digits.

NOTHING = "(no message)"
SEVERAL = " + "  # between the names of several rules


class Captions(NamedTuple):
    """U different captions in G groups."""

    texts: list[str]  # [U]
    values: np.ndarray  # the reward of each, normalised; NaN where unknown. [U] float64
    group: np.ndarray  # [U] int64
    names: list[str]  # of the groups. [G]
    worth: np.ndarray  # of each group, to the judge; 0 for that of no message, NaN where unknown. [G] float64
    degrees: bool = True  # whether differences of worth mean something, and not only their signs
    ruled: bool = False  # whether the groups are those of rules
    second: np.ndarray | None = None  # as `values`, of a reward that was learnt with another seed. [U] float64

    @property
    def shows_nothing(self) -> int:
        """The number of the neutral moment's caption; -1 without it."""
        return self.texts.index("") if "" in self.texts else -1

    def group_values(self, times: np.ndarray) -> np.ndarray:
        """The mean reward of each group over the times that its captions were seen; NaN where unknown. [U] -> [G]"""
        return mean_by(self.group, self.values, len(self.names), times)


def mean_by(number: np.ndarray, values: np.ndarray, count: int, weights: np.ndarray | None = None) -> np.ndarray:
    """The mean of the known values with each number; NaN where there are none. [T], [T] -> [count]"""
    known = ~np.isnan(values)
    weights = np.ones(len(values)) if weights is None else weights
    number, values, weights = number[known], values[known], weights[known]
    total = np.bincount(number, weights, count)
    return np.divide(np.bincount(number, weights * values, count), total, out=np.full(count, np.nan), where=total > 0)


def group_captions(texts: Sequence[str], rules: Sequence[str] | None = None) -> tuple[np.ndarray, list[str]]:
    """Puts captions into groups.

    Args:
      texts: the captions. [U]
      rules: the names of the rules that give each caption its worth, "" where none does; None without rules. [U]

    Returns:
      The group of each caption, [U] int64, and the groups' names.
    """
    numbers: dict[tuple[bool, str], int] = {}
    group = np.empty(len(texts), np.int64)
    for number, text in enumerate(texts):
        rule = rules[number] if rules is not None else ""
        group[number] = numbers.setdefault((bool(rule), rule or without_digits(text)), len(numbers))
    return group, [name for _, name in numbers]


def without_digits(text: str) -> str:
    """The caption with # for every number."""
    return re.sub(r"\d+", "#", text) or NOTHING
