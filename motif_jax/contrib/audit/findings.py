"""Findings: the suspicions of all checks with their p-values, and which of them are reported (Holm).

Each check tests the hypothesis that a quantity does not pass its threshold. Over all suspicions of all checks together,
Holm's procedure keeps the chance of any false alarm at LEVEL. Findings come worst first: by the share of the pay, of
the episodes or of the answers that they touch.

The checks here need no judge. Those of the pay are pay for neutral captions, inflation, loops, and held pay. Two more
find an agent that is worse than random play in the world's own figures, and inversions, kinds of captions that the
reward puts on the wrong side of others by the judge's labels. Pay is the learnt reward of a step as the agent receives
it, before its coefficient. Shares are of the positive pay.
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
from motif_jax.pages.blocks import Block, Heading, Paragraph, Span, Table, Text, exact, page, soft
from motif_jax.rewards.statistics import Z95, ranks, share_interval

LEVEL = 0.05  # chance of a false alarm in a whole audit
EXACT = 2000  # trials up to which binomial tails are summed; beyond, the normal distribution is close enough
TESTED = 8  # candidates of a check that become suspicions

FEWEST = 20  # episodes; fewer say little about shares
NEUTRAL_GROUP = 0.05  # share of the pay for one neutral group that is reported if passed
NEUTRAL_PAY = 0.1  # the same for all of them
MATTERS = 0.05  # share of the pay from which inflation matters
INFLATION = 2.0
SEEN = 20  # times, for the group that the judge likes best
LEAST_SPREAD = 0.05  # of values within a group, as a share of the distance between the neutral and the best
LOOP = 0.2  # share of an episode's pay for repeats of one caption
LOOPING = 0.1  # share of the episodes
REPEATS = 3  # at least, within an episode
HELD_STEPS = 3  # in a row, from which an agent stands
HELD_PAY = 0.05  # share of the pay
FEWEST_QUESTIONS = 20  # about a kind of captions
WRONG = 0.5  # share of the labels of a kind of captions that is reported if passed: worse than chance
SHOWN = 12  # kinds of captions in the table of pay

PAY, INFLATED, LOOPS, HELD = CHECKS = "pay for neutral captions", "inflation", "loops", "held pay"
WORSE, INVERSIONS = "worse than random play", "inversions"
NOTHING = "(no message)"
SEVERAL = " + "  # between the names of several rules
SECOND = "--config.audit.second_reward_dir"
THRESHOLD = "a higher --config.policy.threshold_quantile"
MORE_DEGREES = "labels with degrees (--config.reward.labels=soft) or more pairs (--config.collect.num_pairs)"
FILE = "audit"  # `audit.json`

Figures = Mapping[str, tuple[np.ndarray, np.ndarray]]  # by name: of the agent's episodes and of random play's. [E] each


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
    suspicions: Sequence[Suspicion] = ()
    skipped: str = ""  # the reason why it was not made; "": it was made
    tested: int = 0  # candidates, of which the suspicions are the worst; 0: all are suspicions

    def advised(self, advice: str) -> Check:
        """The check with other advice."""
        return self._replace(suspicions=[one._replace(advice=advice) for one in self.suspicions])


class Findings(NamedTuple):
    """The result of an audit."""

    found: list[Suspicion]  # worst first
    clear: list[Check]  # checks that found nothing
    skipped: list[Check]
    paid: Sequence[dict[str, Any]]  # see `most_paid`; a `worth` of NaN: unknown
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
    adjusted, largest = [0.0] * len(ps), 0.0
    for rank, index in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
        largest = adjusted[index] = max(largest, min(1.0, (count - rank) * ps[index]))
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


class Share(NamedTuple):
    """A share with its standard error; as text, in percent with its 95 % interval."""

    size: float
    error: float

    @property
    def ends(self) -> tuple[float, float]:
        return self.size - Z95 * self.error, self.size + Z95 * self.error

    def __str__(self) -> str:
        return percent(self.size, *self.ends)

    def above(self, threshold: float) -> float:
        """The p-value, if the true share is at most the threshold."""
        return normal_tail((self.size - threshold) / self.error) if self.error > 0 else float(self.size <= threshold)


def ratio(parts: np.ndarray, wholes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The sum of the parts over that of the wholes, and its standard error over the E episodes. [E, ...] each"""
    share = parts.sum(0) / wholes.sum()
    rest = parts - share * wholes
    count = len(parts)
    return share, (count / max(count - 1, 1) * (rest**2).sum(0)) ** 0.5 / wholes.sum()


def share_of(parts: np.ndarray, wholes: np.ndarray) -> Share:
    """`ratio` of one column. [E] each"""
    return Share(*map(float, ratio(parts, wholes)))


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


# ---- groups of captions: those with the same rules, and those that differ only in digits


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
    has_digits: bool = False  # whether captions that differ only in digits are of different kinds

    @property
    def shows_nothing(self) -> int:
        """The number of the neutral moment's caption; -1 without it."""
        return self.texts.index("") if "" in self.texts else -1


def mean_by(number: np.ndarray, values: np.ndarray, count: int, weights: np.ndarray | None = None) -> np.ndarray:
    """The mean of the known values with each number; NaN where there are none. [T], [T] -> [count]"""
    known = ~np.isnan(values)
    weights = np.ones(len(values)) if weights is None else weights
    number, values, weights = number[known], values[known], weights[known]
    total = np.bincount(number, weights, count)
    return np.divide(np.bincount(number, weights * values, count), total, out=np.full(count, np.nan), where=total > 0)


def group_captions(texts: Sequence[str], rules: Sequence[str] | None = None) -> tuple[np.ndarray, list[str]]:
    """The group of each caption, [U] int64, and the groups' names.

    `rules`: names of the rules that give each caption its worth, "" where none does; None without rules. [U]
    """
    numbers: dict[tuple[bool, str], int] = {}
    named = zip(texts, rules or [""] * len(texts), strict=True)
    keys = [(bool(rule), rule or without_digits(text)) for text, rule in named]
    group = np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int64)
    return group, [name for _, name in numbers]


def without_digits(text: str) -> str:
    """The caption with # for every number."""
    return re.sub(r"\d+", "#", text) or NOTHING


# ---- the checks of pay


class Steps(NamedTuple):
    """The steps of E episodes, one after another."""

    episode: np.ndarray  # 0 to E - 1. [T] int
    caption: np.ndarray  # number of the caption that is rewarded. [T] int
    pay: np.ndarray  # [T] float

    @property
    def episodes(self) -> int:
        return int(self.episode.max(initial=-1)) + 1


class Paid(NamedTuple):
    """How the positive pay of some episodes is shared among the groups of captions."""

    share: np.ndarray  # [G] float64
    error: np.ndarray  # standard error over episodes. [G]
    times: np.ndarray  # steps that show the group. [G]
    total: np.ndarray  # positive pay of each episode. [E]
    by_episode: np.ndarray  # of each episode by group, for the K groups that are paid at all. [E, K]
    columns: np.ndarray  # the numbers of these groups. [K]
    values: np.ndarray  # the mean reward of each group over its steps; NaN where unknown. [G]

    def of(self, group: int) -> tuple[Share, float]:
        """The share of a group, and its pay each time."""
        share = Share(float(self.share[group]), float(self.error[group]))
        return share, share.size * float(self.total.sum()) / int(self.times[group])

    def together(self, groups: np.ndarray) -> Share:
        """The share of several groups. [G] bool"""
        return share_of(self.by_episode[:, groups[self.columns]].sum(1), self.total)


def share_pay(steps: Steps, captions: Captions) -> Paid:
    """Divides the pay among the groups of captions."""
    group, pay = captions.group[steps.caption], np.maximum(steps.pay, 0)
    count, episodes = len(captions.names), steps.episodes
    columns = np.flatnonzero(np.bincount(group, weights=pay, minlength=count))
    column_of = np.full(count, -1)
    column_of[columns] = np.arange(len(columns))
    paid = pay > 0
    cell = steps.episode[paid].astype(np.int64) * len(columns) + column_of[group[paid]]
    table = np.bincount(cell, weights=pay[paid], minlength=episodes * len(columns)).reshape(episodes, len(columns))
    total, share, error = table.sum(1), np.zeros(count), np.zeros(count)
    if len(columns):
        share[columns], error[columns] = ratio(table, total[:, None])
    seen = np.bincount(steps.caption, minlength=len(captions.texts))
    values = mean_by(captions.group, captions.values, count, seen)
    return Paid(share, error, np.bincount(group, minlength=count), total, table, columns, values)


def check_pay(captions: Captions, paid: Paid, steps: Steps, still: np.ndarray | str, worthless: str) -> list[Check]:
    """The four checks; `worthless`: why two of them cannot be made, or ""."""
    checks = [Check(name, skipped=worthless) for name in (PAY, INFLATED)]
    if not worthless:
        checks = [check_neutral(captions, paid), check_inflation(captions, paid)]
    return [*checks, check_loops(captions, paid, steps), check_held(captions, paid, steps, still)]


def check_neutral(captions: Captions, paid: Paid) -> Check:
    """Finds paid groups that the judge calls neutral or worse."""
    dull = (captions.worth <= 0) & (paid.share > 0)  # False for unknown worths (NaN)
    share = paid.together(dull)
    sentence = f"{share} of the pay is for captions that the judge calls neutral or worse"
    suspicions = [Suspicion(sentence, f"{THRESHOLD}, or {MORE_DEGREES}", share.size, share.above(NEUTRAL_PAY))]
    for group in largest(paid.share, dull):
        share, each = paid.of(group)
        verdict = "neutral" if captions.worth[group] == 0 else "worse than nothing"
        sentence = f"{quoted(captions.names[group])} gets {share} of the pay, {each:.2g} each time, and the judge calls"
        suspicions.append(Suspicion(f"{sentence} it {verdict}", THRESHOLD, share.size, share.above(NEUTRAL_GROUP)))
    scope = f"{len(paid.total):,} episodes, {int((paid.times > 0).sum()):,} kinds of captions"
    return Check(PAY, scope, suspicions, tested=int(dull.sum()) + 1)


def check_inflation(captions: Captions, paid: Paid) -> Check:
    """Finds inflated groups: [(r - r0) / (r* - r0)] / (w / w*) is above INFLATION.

    0 is the neutral moment, of worth 0, * the rule that the judge likes best among those seen SEEN times. The error of
    r is the spread of the values within groups; r0 has none, as no moment is more frequent. A group counts only if its
    share of the pay passes MATTERS.
    """
    nothing, group_of, values = captions.shows_nothing, captions.group, paid.values  # [U], [G]
    if nothing < 0 or np.isnan(captions.values[nothing]):
        return Check(INFLATED, skipped="this world has no moment without a message, so there is no neutral reward")
    if not captions.degrees:
        return Check(INFLATED, skipped="this judge gives an order of captions and no degrees")
    known = ~np.isnan(captions.worth) & ~np.isnan(values)
    # The groups that the judge likes best, all of the same worth; groups of several rules are left out.
    single = np.array([not captions.ruled or SEVERAL not in name for name in captions.names])
    best = np.flatnonzero(known & (paid.times >= SEEN) & single & (captions.worth > 0))
    best = best[captions.worth[best] == captions.worth[best].max(initial=-np.inf)]
    if not len(best):
        return Check(INFLATED, skipped=f"no caption that the judge likes was seen {SEEN} times")
    base, top = captions.values[nothing], float(np.average(values[best], weights=paid.times[best]))
    part = captions.worth / captions.worth[best[0]]
    small = known & (part > 0) & (part < 1) & (paid.share > 0)

    valued = ~np.isnan(captions.values)
    counts = np.bincount(group_of[valued], minlength=len(values))  # captions with a value. [G]
    squares = (captions.values - mean_by(group_of, captions.values, len(values))[group_of])[valued] ** 2
    spread = (float(squares.sum()) / max(int((counts - 1)[counts > 1].sum()), 1)) ** 0.5
    spread = max(spread, LEAST_SPREAD * abs(top - base))
    liked, suspicions = quoted(captions.names[best[0]]), []
    for group in largest(paid.share, small):
        name, (share, _), goal = quoted(captions.names[group]), paid.of(group), INFLATION * part[group]
        sentence = f"{liked}, which the judge likes best, is rewarded no better than nothing; {name} is rewarded"
        if top > base:
            rewarded = percent(float((values[group] - base) / (top - base)))
            sentence = f"{name} has {percent(float(part[group]))} of the worth of {liked} and {rewarded} of its reward"
        beyond = values[group] - (1 - goal) * base - goal * top  # above 0 where the ratio is above INFLATION
        error = spread * (1 / counts[group] + goal**2 / counts[best].sum()) ** 0.5
        sentence += f", and gets {percent(share.size)} of the pay"
        p = max(Share(beyond, error).above(0.0), share.above(MATTERS))
        suspicions.append(Suspicion(sentence, MORE_DEGREES, share.size, p))
    return Check(INFLATED, f"{len(suspicions)} kinds of captions beside {liked}", suspicions, tested=int(small.sum()))


def check_loops(captions: Captions, paid: Paid, steps: Steps) -> Check:
    """Finds captions whose repeats get much of an episode's pay.

    A caption, as a rule whatever its digits, loops in an episode if its repeats, beyond the first time, get more than
    LOOP of the episode's pay. Captions that the judge likes at least half as much as the best are meant to be repeated,
    and do not count.
    """
    texts: dict[str, int] = {}
    kinds = [text if text and captions.has_digits else without_digits(text) for text in captions.texts]
    keys = np.array([texts.setdefault(kind, len(texts)) for kind in kinds], np.int64)
    names, worth = list(texts), np.full(len(texts), np.nan)
    worth[keys] = captions.worth[captions.group]
    wanted = (worth > 0) & (worth >= np.nan_to_num(worth).max(initial=0) / 2)

    rows = np.flatnonzero(steps.pay > 0)
    cell = steps.episode[rows].astype(np.int64) * len(names) + keys[steps.caption[rows]]
    cells, first, inverse, times = np.unique(cell, return_index=True, return_inverse=True, return_counts=True)
    repeated = np.bincount(inverse, weights=steps.pay[rows], minlength=len(cells)) - steps.pay[rows][first]
    loops = (repeated > LOOP * paid.total[cells // len(names)]) & (times > REPEATS)
    episodes, count = np.bincount(cells[loops] % len(names), minlength=len(names)), len(paid.total)
    episodes[wanted] = 0
    advice = "a larger --config.policy.count_exponent, or shorter games, --config.env.max_episode_steps"
    suspicions = []
    for key in largest(episodes, episodes > 0):
        share = float(episodes[key] / count)
        sentence = f"in {percent(share, *share_interval(share, count))} of the episodes the repeats of "
        sentence += f"{quoted(names[key])} get more than {percent(LOOP)} of the pay"
        suspicions.append(Suspicion(sentence, advice, share, binomial_tail(int(episodes[key]), count, LOOPING)))
    scope = f"{count:,} episodes, {len(names):,} captions"
    return Check(LOOPS, scope, suspicions, tested=int((episodes > 0).sum()))


def check_held(captions: Captions, paid: Paid, steps: Steps, still: np.ndarray | str) -> Check:
    """Finds pay for one kind of captions in HELD_STEPS or more steps in a row, while nothing else happens.

    What the judge likes counts too, because nothing is done for it. `still`: whether all figures of the game are those
    of the step before, [T] bool; or why this is not known.
    """
    if isinstance(still, str):
        return Check(HELD, skipped=still)
    group, rewarded = captions.group[steps.caption], steps.pay > 0
    same = (np.diff(group) == 0) & (np.diff(steps.episode) == 0) & still[1:] & rewarded[1:] & rewarded[:-1]
    run = np.cumsum(np.r_[False, ~same])
    held = rewarded & (np.bincount(run)[run] >= HELD_STEPS)
    share = share_of(np.bincount(steps.episode[held], steps.pay[held], len(paid.total)), paid.total)
    most = np.bincount(group[held], steps.pay[held], len(captions.names))
    best = int(most.argmax())
    sentence = (
        f"{share} of the pay comes while the agent is paid for one kind of captions in {HELD_STEPS} or more steps in a "
        f"row and no figure of the game changes, most for {quoted(captions.names[best])} "
        f"({percent(float(most[best] / paid.total.sum()))})"
    )
    advice = "a second opinion, --config.audit.second_judge, or a larger --config.policy.count_exponent"
    return Check(
        HELD, f"{len(paid.total):,} episodes", [Suspicion(sentence, advice, share.size, share.above(HELD_PAY))]
    )


def most_paid(paid: Paid, captions: Captions) -> list[dict[str, Any]]:
    """The kinds of captions that get most of the pay."""
    rows = []
    for group in np.argsort(-paid.share, kind="stable")[:SHOWN].tolist():
        if not paid.share[group] > 0:
            break
        share, each = paid.of(group)
        low, high = share.ends
        shown = {"captions": captions.names[group], "share": share.size, "low": max(low, 0.0), "high": min(high, 1.0)}
        about = {"reward": float(paid.values[group]), "worth": float(captions.worth[group])}
        rows.append(shown | {"times": int(paid.times[group]), "each": each} | about)
    return rows


# ---- the world's figures


def check_figures(figures: Figures | str) -> Check:
    """Finds figures that are lower for the agent than for random play; in all of them higher is better.

    A figure is worse if its mean is lower, and the ranks of the agent's episodes among all are too low for chance (the
    test of Mann and Whitney, one-sided, with the normal distribution and mean ranks of ties).
    """
    if isinstance(figures, str):
        return Check(WORSE, skipped=figures)
    count = min(len(values) for both in figures.values() for values in both)
    if count < FEWEST:
        why = f"{count} episodes were evaluated, and {FEWEST} are needed (--config.evaluate.episodes)"
        return Check(WORSE, skipped=why)
    figures = {name.replace("_", " "): both for name, both in figures.items()}
    worse, better = ({name: chance_of(*both[::way]) for name, both in figures.items()} for way in (1, -1))
    lowest = min(worse, key=worse.__getitem__)
    means = {
        name: f"{name} ({ours.mean():.3g} against {theirs.mean():.3g})" for name, (ours, theirs) in figures.items()
    }
    below, above = ([means[name] for name, p in ps.items() if p * len(ps) <= LEVEL] for ps in (worse, better))
    below = below or [means[lowest]]
    sentence = f"the agent is below random play in {', '.join(below)}, and above it in {', '.join(above) or 'nothing'}"
    advice = (
        "a second opinion on what it is paid for, --config.audit.second_judge, another judge, --config.annotate.model, "
        "or a longer training, --config.policy.train_for_env_steps"
    )
    ours, theirs = figures[lowest]
    size = float(((theirs > ours[:, None]) + 0.5 * (theirs == ours[:, None])).mean())
    scope = f"{', '.join(figures)}; {len(ours):,} and {len(theirs):,} episodes"
    return Check(WORSE, scope, [Suspicion(sentence, advice, size, worse[lowest])], tested=len(figures))


def chance_of(ours: np.ndarray, theirs: np.ndarray) -> float:
    """The one-sided p-value that our episodes are lower (Mann and Whitney); 1 if their mean is not lower."""
    if not ours.mean() < theirs.mean():
        return 1.0
    rank, size, rest = ranks(np.concatenate([ours, theirs])), len(ours), len(theirs)
    middle = (len(rank) + 1) / 2
    deviation = (size * rest / (len(rank) - 1) * float(((rank - middle) ** 2).mean())) ** 0.5
    return normal_tail((size * middle - float(rank[:size].sum()) - 0.5) / deviation)


# ---- labels


def check_inversions(captions: Captions, pairs: np.ndarray, target: np.ndarray) -> Check:
    """Finds kinds of captions of which the reward contradicts most labels.

    A second reward, learnt with another seed, must contradict them, too: an inversion of one seed alone may be chance.
    Pairs that show the same two captions are one question, and each question counts once.

    Args:
      pairs: captions of the two moments of each pair. [N, 2] int
      target: P(second is better) by the judge; 1/2 is a tie, NaN is unknown. [N]
    """
    values = np.stack([one[pairs] for one in (captions.values, captions.second) if one is not None])  # [R, N, 2]
    decided = ~np.isnan(target) & (target != 0.5) & ~np.isnan(values).any((0, 2))
    decided &= captions.group[pairs[:, 0]] != captions.group[pairs[:, 1]]
    if not decided.any():
        return Check(INVERSIONS, skipped="no label is a preference between captions whose reward is known")
    pairs, target, values = pairs[decided], target[decided], values[:, decided]
    difference = values[..., 1] - values[..., 0]
    wrong = np.where(difference == 0, 0.5, (difference > 0) != (target > 0.5))

    # One row per question: how many pairs ask it, and how many of their labels each reward contradicts.
    ends = np.sort(pairs, axis=1).astype(np.int64)
    key = ends[:, 0] * len(captions.texts) + ends[:, 1]
    _, first, inverse, asked = np.unique(key, return_index=True, return_inverse=True, return_counts=True)
    errors = [np.bincount(inverse, weights=one) for one in wrong]
    sides = captions.group[ends[first]]  # [Q, 2]

    def by_group(weights: np.ndarray) -> np.ndarray:
        """Sums over the questions about each group."""
        return sum(np.bincount(side, weights, len(captions.names)) for side in sides.T)  # type: ignore[return-value]

    labels, mistakes, questions = by_group(asked), by_group(errors[0]), by_group(np.ones(len(asked)))
    shares = np.stack([by_group(one / asked) for one in errors]) / np.maximum(questions, 1)  # [R, G]
    share, suspicions, seeds = shares.min(0), [], "two rewards"  # a kind is inverted as far as all rewards say so
    advice = "more pairs with it, --config.collect.num_pairs, or a longer training, --config.reward.num_epochs"
    if captions.second is None:
        seeds = "one reward"
        advice = f"a second reward, learnt with another seed, {SECOND}, to see whether it is chance; {advice}"
    for group in largest(share, (questions >= FEWEST_QUESTIONS) & (share > WRONG)):
        count, wrongs = int(questions[group]), " and ".join(percent(float(one)) for one in shares[:, group])
        sentence = (
            f"{quoted(captions.names[group])} is on the wrong side in {wrongs} of {count:,} questions about it, which "
            f"{labels[group]:,.0f} labels answer, by {seeds}"
        )
        p = binomial_tail(share[group] * count, count, WRONG)
        suspicions.append(Suspicion(sentence, advice, float(mistakes[group] / len(target)), p))
    scope = f"{len(target):,} labels, {len(asked):,} questions, {seeds}"
    return Check(INVERSIONS, scope, suspicions, tested=int((questions >= FEWEST_QUESTIONS).sum()))


# ---- the record of an audit, `audit.json`: its findings and the pay, as lines in the terminal and as HTML


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


def record_blocks(record: Mapping[str, Any]) -> list[Block]:
    """The findings, worst first, and what the agent was paid for."""
    words = [
        *([f"judged by {record['judge']}"] if record["judge"] else []),
        *([f"the pay of {record['player']}"] if record["player"] else []),
    ]
    body: list[Block] = [Paragraph(describe_file(record))] if "file" in record else []
    body.append(Paragraph(" · ".join(words), "soft"))
    body += findings_blocks(record["findings"], record["nothing_found"], record["not_looked_at"])
    if record["paid"]:
        cells: list[list[Text]] = [
            [(f"{one['share']:.1%} ", soft(f"[{one['low']:.1%}, {one['high']:.1%}]")),
             one["captions"], f"{one['times']:,}", *map(_cell, (one["each"], one["reward"], one["worth"]))]
            for one in record["paid"]
        ]  # fmt: skip
        head = ("share of the pay", "captions", "times", "pay each time", "reward", "worth to the judge")
        body += [Heading("What the agent is paid for"), Table(head, cells, numbers=(2, 3, 4, 5))]
    if rewards := record.get("rewards"):
        rows = [[name, f"{share:.1%}"] for name, share in sorted(rewards.items(), key=lambda one: -one[1])]
        body += [Heading("Which reward pays"), Table(("reward", "share of the pay"), rows, numbers=(1,))]
    return body


def write_page(folder: Path, record: Mapping[str, Any]) -> None:
    """Writes the record of a file as a page of its own, `index.html`."""
    title = f"The audit of {Path(record['file']).name}"
    write_whole(folder / "index.html", page(title, [Heading(title, 1), *record_blocks(record)], main=True))


def _cell(value: float) -> str:
    return exact(value) if math.isfinite(value) else "–"


def findings_blocks(
    findings: Sequence[Mapping[str, Any]], clear: Sequence[Mapping[str, Any]], skipped: Sequence[Mapping[str, Any]]
) -> list[Block]:
    """Findings of an audit, worst first.

    `clear`: checks without a finding, and what they looked at. `skipped`: checks that could not be made, and why.
    """
    rows = [[check["check"], f"{check['sentence']}.", check["advice"]] for check in findings]
    table = Table(("check", "finding, worst first", "try"), rows)
    body: list[Block] = [table if rows else Paragraph(Span("Nothing found."))]
    found = [f"{one['check']} ({one['about']})" if one["about"] else one["check"] for one in clear]
    lists = ("Nothing found by", found), ("Not looked at", [f"{one['check']}: {one['why']}" for one in skipped])
    return body + [Paragraph(f"{what}: {'; '.join(named)}.", "soft") for what, named in lists if named]
