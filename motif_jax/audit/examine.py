"""The audit: from the evidence about a reward to questions for its judge, and from the answers to findings.

    plan = make_plan(evidence, limits, seed)
    answers = ...                               # the judge's, to plan.questions and plan.repeats
    audited = examine(evidence, plan, answers)

Where evidence is missing, a sentence gives the reason, and the checks that need this evidence repeat it. Two checks are
here: whether the agent is worse than random play in the world's own figures, and inversions, kinds of captions that the
reward puts on the wrong side of others by the judge's labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from motif_jax.audit import judge, pay
from motif_jax.audit.findings import (
    LEVEL,
    Captions,
    Check,
    Findings,
    Suspicion,
    binomial_tail,
    conclude,
    group_captions,
    largest,
    mean_by,
    normal_tail,
    percent,
    quoted,
)
from motif_jax.audit.judge import JudgeAnswers, JudgePlan, Opinion, QuestionLimits, verdicts
from motif_jax.audit.pay import Steps
from motif_jax.audit.record import most_paid
from motif_jax.rewards.statistics import ranks

WORSE, INVERSIONS = "worse than random play", "inversions"
JUDGE_CHECKS = judge.ANSWERED, judge.ORDERS, judge.AGAIN, judge.CIRCLES, judge.OPINION, judge.WHOLE
FEWEST_EPISODES = 20  # of each player
FEWEST_QUESTIONS = 20  # about a kind of captions
SECOND = "--config.audit.second_reward_dir"
WRONG = 0.5  # share of the labels of a kind of captions that is reported if passed: worse than chance

Figures = Mapping[str, tuple[np.ndarray, np.ndarray]]  # by name: of the agent's episodes and of random play's. [E] each


class Labels(NamedTuple):
    """Labelled pairs of captions."""

    pairs: np.ndarray  # [N, 2] int
    target: np.ndarray  # P(second is better); NaN where unknown. [N]


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
    still: np.ndarray  # whether nothing happens in these steps, see `pay.check_held`. [T] bool
    figures: Figures | str  # of the world
    labels: Labels | str
    episodes: EpisodePairs | str
    judge: str = ""  # why no judge can be asked
    soft: bool = False  # whether the judge answers with probabilities

    def seen(self) -> tuple[np.ndarray, np.ndarray]:
        """The pay for each caption, and how often it was seen. [U] each"""
        count = len(self.captions.texts)
        if isinstance(self.steps, Steps):
            caption, weights = self.steps.caption, np.maximum(self.steps.pay, 0)
            return np.bincount(caption, weights, count), np.bincount(caption, minlength=count)
        shown = self.labels.pairs.ravel() if isinstance(self.labels, Labels) else np.zeros(0, np.int64)
        return np.zeros(count), np.bincount(shown, minlength=count)


class Audited(NamedTuple):
    """The result."""

    findings: Findings
    paid: list[dict[str, Any]]  # see `most_paid`; a `worth` of NaN: unknown
    neutral: float = 0.0  # in flight: the share of the pay for captions that the judge calls neutral or worse


def make_plan(evidence: Evidence, limits: QuestionLimits, seed: int) -> JudgePlan:
    """The questions for the judge; none if there is no judge to ask."""
    plan, captions = JudgePlan(), evidence.captions
    if evidence.judge:
        return plan
    pay_of, times = evidence.seen()
    plan.pool = judge.choose_pool(captions, pay_of, times)
    if not evidence.rules and captions.shows_nothing >= 0:
        plan.worth = plan.both(("", captions.texts[at]) for at in plan.pool)  # is it better than the neutral moment?
    judge.ask_for_consistency(plan, captions, limits, np.random.default_rng([seed, 25]))
    if isinstance(evidence.episodes, EpisodePairs):
        plan.episodes = plan.both(zip(evidence.episodes.early, evidence.episodes.late, strict=True))
    return plan


def examine(
    evidence: Evidence, plan: JudgePlan, answers: JudgeAnswers, second: Opinion | str = "no second judge is named"
) -> Audited:
    """The findings about a reward and its judge; `second`: another judge's opinion, or the reason why it is missing."""
    captions = evidence.captions
    if len(plan.worth):
        captions = judge.with_asked_worth(captions, plan, answers, evidence.soft)
    figures, episodes, most = evidence.figures, evidence.episodes, list[dict[str, Any]]()
    checks = [Check(WORSE, skipped=figures) if isinstance(figures, str) else check_figures(figures)]
    why = evidence.steps if isinstance(evidence.steps, str) else ""
    if isinstance(evidence.steps, Steps):
        paid = pay.share_pay(evidence.steps, captions)
        most = most_paid(paid, captions, evidence.seen()[1])
        if len(paid.total) < pay.FEWEST:
            why = f"{len(paid.total)} episodes were evaluated, and {pay.FEWEST} are needed (--config.evaluate.episodes)"
        elif not paid.total.sum():
            why = "no step of these episodes is rewarded"
        elif not any(captions.texts):
            why = "this world shows no captions"
        else:
            unknown = np.isnan(captions.worth).all()
            worthless = "the judge's worth of the captions is not known" if unknown else ""
            checks += pay.check_pay(captions, paid, evidence.steps, evidence.still, worthless)
    checks += [Check(name, skipped=why) for name in pay.CHECKS if why]
    checks.append(_check_labels(evidence, plan, answers))
    if evidence.judge:
        checks += [Check(name, skipped=evidence.judge) for name in JUDGE_CHECKS]
        return Audited(conclude(checks), most)
    checks += judge.check_judge(plan, answers)
    if isinstance(second, str):
        checks.append(Check(judge.OPINION, skipped=f"{second} (--config.audit.second_judge)"))
    else:
        checks.append(judge.check_opinion(plan, answers, captions, evidence.seen()[0], second))
    if isinstance(episodes, str):
        checks.append(Check(judge.WHOLE, skipped=episodes))
    else:
        checks.append(judge.check_episodes(plan, answers, episodes.early_return, episodes.late_return))
    return Audited(conclude(checks), most)


def _check_labels(evidence: Evidence, plan: JudgePlan, answers: JudgeAnswers) -> Check:
    """By the annotation's labels, or else by the answers about pairs in both orders."""
    if isinstance(evidence.labels, Labels):
        return check_inversions(evidence.captions, *evidence.labels)
    if not len(plan.flips):
        return Check(INVERSIONS, skipped=evidence.labels)
    check = check_inversions(evidence.captions, plan.pairs, 0.5 + judge.verdicts(answers.mean(plan.flips)) / 2)
    if check.skipped:
        return check._replace(skipped=f"{check.skipped}, and {evidence.labels}")
    return check._replace(scope=f"{check.scope}, asked for this audit, as {evidence.labels}")


# ---- the world's figures


def check_figures(figures: Figures) -> Check:
    """Finds figures that are lower for the agent than for random play; in all of them higher is better.

    A figure is worse if its mean is lower, and the ranks of the agent's episodes among all are too low for chance (the
    test of Mann and Whitney, one-sided, with the normal distribution and mean ranks of ties).
    """
    count = min(len(values) for both in figures.values() for values in both)
    if count < FEWEST_EPISODES:
        why = f"{count} episodes were evaluated, and {FEWEST_EPISODES} are needed (--config.evaluate.episodes)"
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
    return Check(WORSE, scope, (Suspicion(sentence, advice, size, worse[lowest]),), tested=len(figures))


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
    _, first, inverse, asked = np.unique(
        ends[:, 0] * len(captions.texts) + ends[:, 1], return_index=True, return_inverse=True, return_counts=True
    )
    errors = [np.bincount(inverse, weights=one) for one in wrong]
    sides = captions.group[ends[first]]  # [Q, 2]

    def by_group(weights: np.ndarray) -> np.ndarray:
        """Sums over the questions about each group."""
        return sum(np.bincount(side, weights, len(captions.names)) for side in sides.T)  # type: ignore[return-value]

    labels, mistakes, questions = by_group(asked), by_group(errors[0]), by_group(np.ones(len(asked)))
    shares = np.stack([by_group(one / asked) for one in errors]) / np.maximum(questions, 1)  # [R, G]
    share, suspicions = shares.min(0), []  # a kind is inverted as far as all rewards say so
    seeds = "one reward" if captions.second is None else "two rewards"
    advice = "more pairs with it, --config.collect.num_pairs, or a longer training, --config.reward.num_epochs"
    if captions.second is None:
        advice = f"a second reward, learnt with another seed, {SECOND}, to see whether it is chance; {advice}"
    for group in largest(share, (questions >= FEWEST_QUESTIONS) & (share > WRONG)):
        count = int(questions[group])
        wrongs = " and ".join(percent(float(one)) for one in shares[:, group])
        suspicions.append(Suspicion(
            f"{quoted(captions.names[group])} is on the wrong side in {wrongs} of {count:,} questions about it, which "
            f"{labels[group]:,.0f} labels answer, by {seeds}",
            advice, float(mistakes[group] / len(target)), binomial_tail(share[group] * count, count, WRONG),
        ))  # fmt: skip
    scope = f"{len(target):,} labels, {len(asked):,} questions, {seeds}"
    return Check(INVERSIONS, scope, tuple(suspicions), tested=int((questions >= FEWEST_QUESTIONS).sum()))


# The audit of a reward that is learnt during training: the captions it has paid for, by the judge's labels so far.
#
# Nothing is asked. A caption is worth 1 if the judge calls it better than no message, 0 if it calls it neutral, and
# -1 if it calls it worse; captions without a label have no worth. With these, the checks are those of `pay.py`.

MORE_LABELS = (
    "more labels, first where the network is least certain, --config.policy.online.order=uncertain, or, for "
    "classification, a higher --config.policy.online.threshold"
)


def audit_in_flight(steps: Steps, texts: Sequence[str], better: np.ndarray) -> Audited:
    """Audits the last episodes.

    Args:
      steps: the paid steps of the episodes; episodes without any have the first numbers.
      texts: the captions. [U]
      better: P(better than no message) of each caption, by the judge; NaN without a label. [U]
    """
    worth = verdicts(better)
    group, names = group_captions(texts)
    of_kind = Captions(list(texts), np.full(len(texts), np.nan), group, names, mean_by(group, worth, len(names)))
    of_label = _split(of_kind, worth)  # captions of one kind may have different labels
    paid = pay.share_pay(steps, of_label)
    if steps.episodes < pay.FEWEST or not paid.total.sum():
        why = "no step of the last episodes is paid"
        if 0 < steps.episodes < pay.FEWEST:
            why = f"{steps.episodes} episodes have ended since training began or went on, and {pay.FEWEST} are needed"
        return Audited(conclude([Check(name, skipped=why) for name in (pay.PAY, pay.LOOPS)]), [])
    checks = [Check(pay.PAY, skipped="no label says whether a caption is better than no message")]
    if not np.isnan(worth).all():
        neutral = pay.check_neutral(of_label, paid)
        checks = [neutral._replace(suspicions=tuple(one._replace(advice=MORE_LABELS) for one in neutral.suspicions))]
    checks.append(pay.check_loops(of_kind, paid, steps))
    most = most_paid(paid, of_label, np.bincount(steps.caption, minlength=len(texts)))
    return Audited(conclude(checks), most, paid.together(of_label.worth <= 0)[0])


def _split(captions: Captions, worth: np.ndarray) -> Captions:
    """The same captions in groups of one kind and one worth."""
    unknown = 2.0
    both = np.stack([captions.group, np.nan_to_num(worth, nan=unknown)], 1)
    kinds, group = np.unique(both, axis=0, return_inverse=True)
    names, worth = [captions.names[int(kind)] for kind in kinds[:, 0]], kinds[:, 1]
    return captions._replace(group=group.reshape(-1), names=names, worth=np.where(worth == unknown, np.nan, worth))
