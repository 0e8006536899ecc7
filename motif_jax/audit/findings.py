"""Findings: the suspicions of all checks with their p-values, and which of them are reported (Holm).

Each check tests the hypothesis that a quantity does not pass its threshold. Over all suspicions of all checks together,
Holm's procedure keeps the chance of any false alarm at LEVEL. Findings come worst first: by the share of the pay, of
the episodes or of the answers that they touch.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from motif_jax.console import clean, print_line
from motif_jax.files import write_whole
from motif_jax.pages.blocks import findings_blocks, page, table
from motif_jax.pages.formats import esc, exact

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


# ---- the record of an audit, `audit.json`: its findings and the pay, as lines in the terminal and as HTML

FILE = "audit"


def make_record(findings: Findings, player: str, judge: str) -> dict[str, Any]:
    """The content of `audit.json`. `judge`: "" if there is none."""
    return {
        "player": player,
        "judge": judge,
        "findings": [one._asdict() for one in findings.found],
        "nothing_found": [{"check": one.name, "about": one.scope} for one in findings.clear],
        "not_looked_at": [{"check": one.name, "why": one.skipped} for one in findings.skipped],
        "paid": findings.paid,
    }


def describe_file(record: Mapping[str, Any]) -> str:
    """What was read of a file of trajectories, in one line."""
    left = f", {record['unfinished']:,} unfinished episodes left out" if record["unfinished"] else ""
    unread = f"; columns that were not read: {', '.join(record['unread'])}" if record["unread"] else ""
    return f"{record['file']}: {record['episodes']:,} episodes, {record['steps']:,} rows{left}{unread}"


def print_record(record: Mapping[str, Any], file: Path) -> None:
    """Prints the findings, worst first."""
    if "file" in record:
        print_line(f"audit: {describe_file(record)}")
    found = record["findings"]
    by = f", judged by {record['judge']}" if record["judge"] else ""
    many = "1 finding" if len(found) == 1 else f"{len(found)} findings"
    print_line(f"audit: {many if found else 'nothing found'}{by}")
    for number, one in enumerate(found, 1):
        print_line(f"audit: {number}. {clean(one['check'])}: {clean(one['sentence'])}. Try {one['advice']}.")
    for one in record["nothing_found"]:
        print_line(f"audit: {one['check']}: nothing found ({clean(one['about'])})")
    for one in record["not_looked_at"]:
        print_line(f"audit: {one['check']}: not looked at: {clean(one['why'])}")
    print_line(f"audit: {file}")


def record_blocks(record: Mapping[str, Any]) -> list[str]:
    """The findings, worst first, and what the agent was paid for, as HTML."""
    words = [
        *([f"judged by {esc(record['judge'])}"] if record["judge"] else []),
        *([f"the pay of {esc(record['player'])}"] if record["player"] else []),
    ]
    body = [f"<p>{esc(describe_file(record))}</p>"] if "file" in record else []
    body.append(f'<p class="soft">{" · ".join(words)}</p>')
    body += findings_blocks(record["findings"], record["nothing_found"], record["not_looked_at"])
    if record["paid"]:
        cells = [
            [f"{one['share']:.1%} <span class=\"soft\">[{one['low']:.1%}, {one['high']:.1%}]</span>",
             esc(one["captions"]), f"{one['times']:,}", *map(_cell, (one["each"], one["reward"], one["worth"]))]
            for one in record["paid"]
        ]  # fmt: skip
        head = ("share of the pay", "captions", "times", "pay each time", "reward", "worth to the judge")
        body += ["<h3>What the agent is paid for</h3>", table(head, cells, numbers=(2, 3, 4, 5))]
    if rewards := record.get("rewards"):
        rows = [[esc(name), f"{share:.1%}"] for name, share in sorted(rewards.items(), key=lambda one: -one[1])]
        body += ["<h3>Which reward pays</h3>", table(("reward", "share of the pay"), rows, numbers=(1,))]
    return body


def write_page(folder: Path, record: Mapping[str, Any]) -> None:
    """Writes the record of a file as a page of its own, `index.html`."""
    title = f"The audit of {Path(record['file']).name}"
    text = page(title, ["<main>", f"<h1>{esc(title)}</h1>", *record_blocks(record), "</main>"])
    write_whole(folder / "index.html", text)


def _cell(value: float) -> str:
    return exact(value) if math.isfinite(value) else "–"
