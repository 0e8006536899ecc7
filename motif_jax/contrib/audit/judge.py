"""The questions for the judge, the checks of its answers, and the audit as a whole.

    plan = make_plan(evidence, flips, triples, repeats, seed)
    answers = ...                               # the judge's, to plan.questions and plan.repeats
    findings = examine(evidence, plan, answers)

An answer is P(second is better), NaN where it could not be read. Questions are pairs of texts, in the order shown. No
answer may come from a cache, as some questions are repeated. Where evidence is missing, a sentence gives the reason,
and the checks that need this evidence repeat it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from motif_jax.annotation.verdicts import PairAnswers, PairPlan
from motif_jax.contrib.audit import findings
from motif_jax.contrib.audit.findings import Captions, Check, Findings, Steps, Suspicion, percent, quoted
from motif_jax.rewards.statistics import share_interval

POOL = 60  # captions that questions are about
TIE = 0.1  # an answer this close to one half is a tie
FEWEST = 20  # answers
UNREADABLE, FLIPS, REPEATS, TRIPLES = 0.1, 0.05, 0.05, 0.02  # shares that are reported if passed
BIASED = 0.75  # share of the changed answers for one position from which the order is to blame
SUREST = (0.02, 0.98)  # probabilities beyond these count as these
DISAGREEING = 0.1  # share of the pairs that two judges decide differently
OFTEN = 5  # pairs with a caption, for the judges' opinions on it
NAMED = 2  # captions
COIN = 0.25  # circles among triples of a judge that throws a coin
BY_RATINGS = (
    "the judge rates single messages, so its answers about pairs do not depend on their order and form no circles "
    "(--config.annotate.mode)"
)
FEWEST_PAIRS = 10  # of episodes
LEAST_VARIANCE = 0.01  # of the differences, as all of a few pairs may be alike
MORE_LABELS = (
    "more labels, first where the network is least certain, --config.policy.online.order=uncertain, or, for "
    "classification, a higher --config.policy.online.threshold"
)

JUDGE_CHECKS = "readable answers", "both orders", "repeated questions", "triples", "second opinion", "whole episodes"
ANSWERED, ORDERS, AGAIN, CIRCLES, OPINION, WHOLE = JUDGE_CHECKS


class EpisodePairs(NamedTuple):
    """The same games, played by random play and by the agent."""

    early: list[str]  # the episodes of random play in words. [P]
    late: list[str]
    early_return: np.ndarray  # learnt returns. [P]
    late_return: np.ndarray


class Evidence(NamedTuple):
    """The evidence about a reward; a string is the reason why a part is missing."""

    captions: Captions
    rules: bool  # whether rules give the worth of captions; otherwise the judge is asked
    steps: Steps | str  # of the agent
    still: np.ndarray  # whether nothing happens in these steps, see `findings.check_held`. [T] bool
    figures: findings.Figures | str  # of the world
    # Labelled pairs of captions, [N, 2] int, and P(second is better), NaN where unknown, [N].
    labels: tuple[np.ndarray, np.ndarray] | str
    episodes: EpisodePairs | str
    judge: str = ""  # why no judge can be asked
    soft: bool = False  # whether the judge answers with probabilities
    rates: bool = False  # whether it rates single captions, from which all answers about pairs follow

    def seen(self) -> tuple[np.ndarray, np.ndarray]:
        """The pay for each caption, and how often it was seen. [U] each"""
        count = len(self.captions.texts)
        if isinstance(self.steps, Steps):
            caption, weights = self.steps.caption, np.maximum(self.steps.pay, 0)
            return np.bincount(caption, weights, count), np.bincount(caption, minlength=count)
        shown = np.zeros(0, np.int64) if isinstance(self.labels, str) else self.labels[0].ravel()
        return np.zeros(count), np.bincount(shown, minlength=count)


# ---- the questions


class JudgePlan(PairPlan):
    """The distinct questions, and their numbers by check."""

    def __init__(self) -> None:
        super().__init__()
        self.flips = self.worth = np.zeros((0, 2), np.int64)  # the question, and its other order. [F, 2], [K, 2]
        self.episodes = self.flips  # the same of pairs of whole episodes: random play first. [P, 2]
        self.triples = np.zeros((0, 3), np.int64)  # a or b, b or c, a or c. [R, 3]
        self.pool = np.zeros(0, np.int64)  # captions that questions are about. [K]
        self.pairs = self.flips  # the captions of `flips`. [F, 2]

    def purposes(self) -> dict[str, int]:
        return {
            "for both orders": 2 * len(self.flips),
            "for triples": self.triples.size,
            "repeats": len(self.repeats),
            "for the worth of captions": 2 * len(self.worth),
            "about whole episodes": 2 * len(self.episodes),
        }


def make_plan(evidence: Evidence, flips: int, triples: int, repeats: int, seed: int) -> JudgePlan:
    """The questions for the judge; none if there is no judge to ask.

    About captions of the pool, pairs in both orders, triples of three questions each, and repeats.
    """
    plan, captions, texts = JudgePlan(), evidence.captions, evidence.captions.texts
    if evidence.judge:
        return plan
    plan.pool = choose_pool(captions, *evidence.seen())
    if not evidence.rules and captions.shows_nothing >= 0:
        plan.worth = plan.both(("", texts[at]) for at in plan.pool)  # is it better than the neutral moment?
    rng, pool = np.random.default_rng([seed, 25]), plan.pool[np.argsort(captions.values[plan.pool], kind="stable")]
    pairs = np.stack(np.triu_indices(len(pool), 1), 1)
    plan.pairs = rng.permuted(pool[rng.permutation(pairs)[:flips]], axis=1)
    plan.flips = plan.both((texts[first], texts[second]) for first, second in plan.pairs)
    plan.repeats = plan.flips[:repeats, 0]
    # From three thirds of the reward, so that few are ties; each triple once, its captions in any order.
    thirds = np.array_split(pool, 3)
    if len(thirds[-1]) and not evidence.rates:
        drawn = np.unique(np.stack([rng.choice(third, 4 * triples + 1) for third in thirds], 1), axis=0)
        drawn = rng.permuted(rng.permutation(drawn)[:triples], axis=1)
        named = ((texts[a], texts[b], texts[c]) for a, b, c in drawn)
        plan.triples = plan.add((two for a, b, c in named for two in ((a, b), (b, c), (a, c))), 3)
    if isinstance(evidence.episodes, EpisodePairs):
        plan.episodes = plan.both(zip(evidence.episodes.early, evidence.episodes.late, strict=True))
    return plan


def choose_pool(captions: Captions, pay: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Captions to ask about: those with most of the pay, the most frequent ones, and some across all rewards.

    Each group is represented by its most frequent caption. `pay`, `times`: of each caption. [U]
    """
    order = np.lexsort((-times, captions.group))
    order = order[[bool(captions.texts[number]) for number in order]]  # without the neutral moment
    first = order[np.unique(captions.group[order], return_index=True)[1]]
    by_pay, by_times = (
        first[np.argsort(-np.bincount(captions.group, weights)[captions.group[first]], kind="stable")]
        for weights in (pay, times)
    )
    by_value = first[np.argsort(captions.values[first], kind="stable")]
    spread = by_value[np.linspace(0, max(len(by_value) - 1, 0), POOL // 3).astype(int)] if len(by_value) else by_value
    parts = np.concatenate([by_pay[: POOL // 3], spread, by_times])
    return parts[np.sort(np.unique(parts, return_index=True)[1])][:POOL]


# ---- the checks of the answers


def verdicts(answers: np.ndarray) -> np.ndarray:
    """-1: the first, 0: a tie, 1: the second, NaN: unreadable. [.] -> [.]"""
    sides = np.where(np.abs(answers - 0.5) <= TIE, 0.0, np.sign(answers - 0.5))
    return np.where(np.isnan(answers), np.nan, sides)


def check_judge(plan: JudgePlan, answers: PairAnswers, rates: bool = False) -> list[Check]:
    """How consistent the judge is. `rates`: see `Evidence`."""
    if not plan.numbers:
        return [Check(ANSWERED, skipped="nothing was asked: there are too few captions, or --config.audit.flips is 0")]
    count, unread = len(answers.first), int(np.isnan(answers.first).sum())
    sentence = f"{unread:,} of {count:,} questions have no readable answer"
    if unread == count:
        sentence = f"the judge answers nothing: none of its {count:,} answers can be read"
    advice = "--config.annotate.prompt_file, .model, or .sampling.max_tokens"
    suspicion = Suspicion(sentence, advice, unread / count, findings.binomial_tail(unread, count, UNREADABLE))
    answered = Check(ANSWERED, f"{count:,} questions", [suspicion])
    again = check_repeats(answers.first[plan.repeats], answers.again)
    if rates:
        return [answered, Check(ORDERS, skipped=BY_RATINGS), again, Check(CIRCLES, skipped=BY_RATINGS)]
    return [answered, _check_orders(plan, answers), again, _check_triples(plan, answers)]


def _check_share(
    name: str, hits: np.ndarray, read: np.ndarray, most: float, sentence: str, advice: str, needed: str, scope: str
) -> Check:
    """A check of the share of hits among the answers that are read, [.] bool; `sentence`: with {} for the share."""
    count = int(read.sum())
    if count < FEWEST:
        return Check(name, skipped=f"{count} {needed}, and {FEWEST} are needed")
    number = int((read & hits).sum())
    share = number / count
    sentence = sentence.replace("{}", f"{percent(share, *share_interval(share, count))} of {count}", 1)
    suspicion = Suspicion(sentence, advice, share, findings.binomial_tail(number, count, most))
    return Check(name, f"{count} {scope}", [suspicion])


def _check_orders(plan: JudgePlan, answers: PairAnswers) -> Check:
    own, turned = verdicts(answers.first[plan.flips]).T
    read = ~np.isnan(own) & ~np.isnan(turned)
    changed = own != -turned
    first, second = (int((read & changed & (side > 0)).sum()) for side in (-own - turned, own + turned))
    sided = max(first, second) / max(first + second, 1)
    sentence = "{} pairs get another answer in the other order"
    advice = "--config.annotate.both_orders=1, --config.annotate.sampling.temperature=0, or another model"
    if first + second >= FEWEST // 2 and sided >= BIASED:
        place = "first" if first > second else "second"
        sentence += f", {percent(sided)} of these for the moment that is shown {place}"
        advice = "--config.annotate.both_orders=1, or --config.annotate.mode=score"
    return _check_share(
        ORDERS, changed, read, FLIPS, sentence, advice, needed="pairs have answers in both orders", scope="pairs"
    )


def check_repeats(first: np.ndarray, again: np.ndarray) -> Check:
    """Whether the judge answers a question the same way twice. [S] each"""
    before, after = verdicts(first), verdicts(again)
    read = ~np.isnan(before) & ~np.isnan(after)
    sentence = "{} questions get another answer the second time"
    advice = "--config.annotate.sampling.temperature=0, or another model, --config.annotate.model"
    needed = "questions were answered twice"
    return _check_share(AGAIN, before != after, read, REPEATS, sentence, advice, needed, "questions")


def _check_triples(plan: JudgePlan, answers: PairAnswers) -> Check:
    """a > b and b > c, and not a > c, for any order of the three; a circle is the worst case."""
    sides = verdicts(answers.first[plan.triples]).T * [[1], [1], [-1]]  # of a and b, b and c, c and a
    read = ~np.isnan(sides).any(0) & ((sides != 0).sum(0) >= 2)
    # Three verdicts around the circle a, b, c: an order has both directions, or one direction once beside two ties.
    total = np.abs(sides.sum(0))
    circles = int((read & (total == 3)).sum())
    sentence = f"{{}} triples of captions are in no order ({circles} circles; a coin makes {percent(COIN)})"
    advice = "a clearer --config.annotate.goal, or another model, --config.annotate.model"
    needed = "triples of captions have two verdicts"
    return _check_share(CIRCLES, total >= 2, read, TRIPLES, sentence, advice, needed, "triples")


def check_opinion(
    plan: JudgePlan, answers: PairAnswers, captions: Captions, pay: np.ndarray, second: tuple[str, np.ndarray] | str
) -> Check:
    """Compares a second judge's verdicts with the first one's. `pay`: of each caption. [U]; `second`: see `examine`."""
    if isinstance(second, str):
        return Check(OPINION, skipped=f"{second} (--config.audit.second_judge)")
    judge, opinion = second
    own, other = verdicts(answers.mean(plan.flips)), verdicts(opinion)
    decided = np.abs(own * other) == 1
    pairs, count = plan.pairs[decided], len(captions.texts)
    asked = np.bincount(pairs.ravel(), minlength=count)
    better = (np.where(side[decided] > 0, pairs[:, 1], pairs[:, 0]) for side in (own, other))
    liked, liked_too = (np.bincount(captions_of, minlength=count) for captions_of in better)
    disputes = np.flatnonzero((asked >= OFTEN) & (np.abs(liked - liked_too) > DISAGREEING * asked))
    paid = np.bincount(captions.group, pay)[captions.group[disputes]]
    named = [
        f"{quoted(captions.texts[at], 40)} wins {liked[at]} of {asked[at]} pairs by the judge and {liked_too[at]} "
        "by the other"
        for at in disputes[np.argsort(-paid, kind="stable")][:NAMED]
    ]
    sentence = f"the judge and {judge} disagree in {{}} pairs that both decide"
    sentence += f": {'; '.join(named)}" if named else ""
    advice = "another judge, --config.annotate.backend or .model, after a look at which of the two is right"
    needed = "pairs of captions are decided by both judges"
    return _check_share(OPINION, own != other, decided, DISAGREEING, sentence, advice, needed, f"pairs, {judge}")


def check_episodes(plan: JudgePlan, answers: PairAnswers, episodes: EpisodePairs | str) -> Check:
    """Checks whether the judge, shown whole episodes, sees the progress that the learnt return shows.

    Each pair is the same game, played by random play and by the agent, asked in both orders. With x = 1 where the
    learnt return is higher in the agent's episode (1/2 for equal ones) and y = P(the agent's is better) by the judge,
    the agent's progress is reported as doubtful if the mean of (y - 1/2) - (x - 1/2) / 2 is below 0: the judge sees
    less than half of it.
    """
    if isinstance(episodes, str):
        return Check(WHOLE, skipped=episodes)
    early, late = episodes.early_return, episodes.late_return
    judged = answers.mean(plan.episodes)
    read = ~np.isnan(judged)
    count = int(read.sum())
    if count < FEWEST_PAIRS:
        why = f"{count} pairs of episodes have answers in both orders, and {FEWEST_PAIRS} are needed"
        return Check(WHOLE, skipped=why)
    y, x = judged[read], np.where(early == late, 0.5, late > early)[read]
    missing = (y - 0.5) - (x - 0.5) / 2
    error = (max(float(missing.var(ddof=1)), LEAST_VARIANCE) / count) ** 0.5
    sentence = (
        f"the learnt return rises from {early[read].mean():.3g} (random play) to {late[read].mean():.3g} and is higher "
        f"in {percent(float(x.mean()))} of {count} pairs of episodes; the judge prefers the agent's in "
        f"{percent(float(y.mean()))}"
    )
    advice = "a higher --config.policy.threshold_quantile, or a smaller --config.policy.intrinsic_coefficient"
    size, p = max(float(x.mean() - y.mean()), 0.0), findings.normal_tail(-float(missing.mean()) / error)
    suspicions = [Suspicion(sentence, advice, size, p)] if x.mean() > 0.5 else []
    return Check(WHOLE, f"{count} pairs in both orders", suspicions)


# ---- the audit as a whole


def examine(
    evidence: Evidence,
    plan: JudgePlan,
    answers: PairAnswers,
    second: tuple[str, np.ndarray] | str = "no second judge is named",
) -> Findings:
    """The findings about a reward and its judge.

    `second`: another judge, and its P(second is better) for the pairs in both orders, [F]; or why this is missing.
    """
    captions, steps = evidence.captions, evidence.steps
    if len(plan.worth):
        captions = with_asked_worth(captions, plan, answers, evidence.soft)
    checks, most = [findings.check_figures(evidence.figures)], list[dict[str, Any]]()
    why = "" if any(captions.texts) else "this world shows no captions"
    if isinstance(steps, str):
        why = steps
    else:
        paid = findings.share_pay(steps, captions)
        most = findings.most_paid(paid, captions)
        if len(paid.total) < findings.FEWEST:
            why = f"{len(paid.total)} episodes were evaluated, and {findings.FEWEST} are needed"
            why += " (--config.evaluate.episodes)"
        elif not paid.total.sum():
            why = "no step of these episodes is rewarded"
        if not why:
            unknown = np.isnan(captions.worth).all()
            worthless = "the judge's worth of the captions is not known" if unknown else ""
            checks += findings.check_pay(captions, paid, steps, evidence.still, worthless)
    checks += [Check(name, skipped=why) for name in findings.CHECKS if why]
    checks.append(_check_labels(evidence, plan, answers))
    if evidence.judge:
        checks += [Check(name, skipped=evidence.judge) for name in JUDGE_CHECKS]
    else:
        checks += check_judge(plan, answers, evidence.rates)
        checks.append(check_opinion(plan, answers, captions, evidence.seen()[0], second))
        checks.append(check_episodes(plan, answers, evidence.episodes))
    return findings.conclude(checks, most)


def with_asked_worth(captions: Captions, plan: JudgePlan, answers: PairAnswers, degrees: bool) -> Captions:
    """The captions, with the worth of groups by the answers to `plan.worth`: log-odds, or signs."""
    p = answers.mean(plan.worth)
    sign, odds = verdicts(p), np.clip(p, *SUREST)
    worth = captions.worth.copy()
    worth[captions.group[plan.pool]] = np.where(sign == 0, 0.0, np.log(odds / (1 - odds))) if degrees else sign
    worth[captions.group[captions.shows_nothing]] = 0.0
    return captions._replace(worth=worth, degrees=degrees)


def _check_labels(evidence: Evidence, plan: JudgePlan, answers: PairAnswers) -> Check:
    """By the annotation's labels, or else by the answers about pairs in both orders."""
    if not isinstance(evidence.labels, str):
        return findings.check_inversions(evidence.captions, *evidence.labels)
    if not len(plan.flips):
        return Check(findings.INVERSIONS, skipped=evidence.labels)
    check = findings.check_inversions(evidence.captions, plan.pairs, 0.5 + verdicts(answers.mean(plan.flips)) / 2)
    if check.skipped:
        return check._replace(skipped=f"{check.skipped}, and {evidence.labels}")
    return check._replace(scope=f"{check.scope}, asked for this audit, as {evidence.labels}")


def audit_in_flight(steps: Steps, texts: Sequence[str], better: np.ndarray) -> Findings:
    """Audits the last episodes of a training that learns its reward: the captions that were paid for, by its labels.

    Nothing is asked. A caption is worth 1 if the judge calls it better than no message, 0 if it calls it neutral, and
    -1 if it calls it worse; captions without a label have no worth.

    Args:
      steps: the paid steps of the episodes; episodes without any have the first numbers.
      texts: the captions. [U]
      better: P(better than no message) of each caption, by the judge; NaN without a label. [U]
    """
    worth = verdicts(better)
    group, names = findings.group_captions(texts)
    of_group = findings.mean_by(group, worth, len(names))
    of_kind = Captions(list(texts), np.full(len(texts), np.nan), group, names, of_group)
    # Captions of one kind may have different labels, so these kinds have one worth each.
    unknown = 2.0
    kinds, split = np.unique(np.stack([group, np.nan_to_num(worth, nan=unknown)], 1), axis=0, return_inverse=True)
    worths = np.where(kinds[:, 1] == unknown, np.nan, kinds[:, 1])
    of_label = of_kind._replace(group=split.reshape(-1), names=[names[int(at)] for at in kinds[:, 0]], worth=worths)
    paid = findings.share_pay(steps, of_label)
    if steps.episodes < findings.FEWEST or not paid.total.sum():
        why = "no step of the last episodes is paid"
        if 0 < steps.episodes < findings.FEWEST:
            why = f"{steps.episodes} episodes have ended since training began or went on, and "
            why += f"{findings.FEWEST} are needed"
        return findings.conclude([Check(name, skipped=why) for name in (findings.PAY, findings.LOOPS)])
    neutral = Check(findings.PAY, skipped="no label says whether a caption is better than no message")
    if not np.isnan(worth).all():
        neutral = findings.check_neutral(of_label, paid).advised(MORE_LABELS)
    checks = [neutral, findings.check_loops(of_kind, paid, steps)]
    return findings.conclude(checks, findings.most_paid(paid, of_label), paid.together(of_label.worth <= 0).size)
