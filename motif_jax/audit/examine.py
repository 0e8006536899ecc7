"""The audit: from the evidence about a reward to questions for its judge, and from the answers to findings.

    plan = make_plan(evidence, limits, seed)
    answers = ...                               # the judge's, to plan.questions and plan.repeats
    findings = examine(evidence, plan, answers)

Where evidence is missing, a sentence gives the reason, and the checks that need this evidence repeat it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from motif_jax.audit import judge, pay
from motif_jax.audit.findings import Captions, Check, Findings, conclude, group_captions, mean_by
from motif_jax.audit.judge import EpisodePairs, JudgeAnswers, JudgePlan, Opinion, QuestionLimits, verdicts
from motif_jax.audit.pay import Steps

JUDGE_CHECKS = judge.ANSWERED, judge.ORDERS, judge.AGAIN, judge.CIRCLES, judge.OPINION, judge.WHOLE


class Labels(NamedTuple):
    """Labelled pairs of captions."""

    pairs: np.ndarray  # [N, 2] int
    target: np.ndarray  # P(second is better); NaN where unknown. [N]


class Evidence(NamedTuple):
    """The evidence about a reward; a string is the reason why a part is missing."""

    captions: Captions
    rules: bool  # whether rules give the worth of captions; otherwise the judge is asked
    steps: Steps | str  # of the agent
    still: np.ndarray  # whether nothing happens in these steps, see `pay.check_held`. [T] bool
    figures: pay.Figures | str  # of the world
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
) -> Findings:
    """The findings about a reward and its judge; `second`: another judge's opinion, or the reason why it is missing."""
    captions = evidence.captions
    if len(plan.worth):
        captions = judge.with_asked_worth(captions, plan, answers, evidence.soft)
    checks, most = [pay.check_figures(evidence.figures)], list[dict[str, Any]]()
    why = evidence.steps if isinstance(evidence.steps, str) else ""
    if isinstance(evidence.steps, Steps):
        paid = pay.share_pay(evidence.steps, captions)
        most = pay.most_paid(paid, captions, evidence.seen()[1])
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
        return conclude(checks, most)
    checks += judge.check_judge(plan, answers)
    checks.append(judge.check_opinion(plan, answers, captions, evidence.seen()[0], second))
    checks.append(judge.check_episodes(plan, answers, evidence.episodes))
    return conclude(checks, most)


def _check_labels(evidence: Evidence, plan: JudgePlan, answers: JudgeAnswers) -> Check:
    """By the annotation's labels, or else by the answers about pairs in both orders."""
    if isinstance(evidence.labels, Labels):
        return pay.check_inversions(evidence.captions, *evidence.labels)
    if not len(plan.flips):
        return Check(pay.INVERSIONS, skipped=evidence.labels)
    check = pay.check_inversions(evidence.captions, plan.pairs, 0.5 + judge.verdicts(answers.mean(plan.flips)) / 2)
    if check.skipped:
        return check._replace(skipped=f"{check.skipped}, and {evidence.labels}")
    return check._replace(scope=f"{check.scope}, asked for this audit, as {evidence.labels}")


# The audit of a reward that is learnt during training: the captions it has paid for, by the judge's labels so far.
#
# Nothing is asked. A caption is worth 1 if the judge calls it better than no message, 0 if it calls it neutral, and
# -1 if it calls it worse; captions without a label have no worth. With these, the checks are those of `pay.py`.

MORE_LABELS = (
    "more labels, first where the network is least certain, --config.policy.online.order=uncertain, or, for "
    "classification, a higher --config.policy.online.threshold"
)


def audit_in_flight(steps: Steps, texts: Sequence[str], better: np.ndarray) -> Findings:
    """Audits the last episodes.

    Args:
      steps: the paid steps of the episodes; episodes without any have the first numbers.
      texts: the captions. [U]
      better: P(better than no message) of each caption, by the judge; NaN without a label. [U]
    """
    worth = verdicts(better)
    group, names = group_captions(texts)
    of_kind = Captions(list(texts), np.full(len(texts), np.nan), group, names, mean_by(group, worth, len(names)))
    # Captions of one kind may have different labels, so these kinds have one worth each.
    unknown = 2.0
    kinds, split = np.unique(np.stack([group, np.nan_to_num(worth, nan=unknown)], 1), axis=0, return_inverse=True)
    worths = np.where(kinds[:, 1] == unknown, np.nan, kinds[:, 1])
    of_label = of_kind._replace(group=split.reshape(-1), names=[names[int(at)] for at in kinds[:, 0]], worth=worths)
    paid = pay.share_pay(steps, of_label)
    if steps.episodes < pay.FEWEST or not paid.total.sum():
        why = "no step of the last episodes is paid"
        if 0 < steps.episodes < pay.FEWEST:
            why = f"{steps.episodes} episodes have ended since training began or went on, and {pay.FEWEST} are needed"
        return conclude([Check(name, skipped=why) for name in (pay.PAY, pay.LOOPS)])
    checks = [Check(pay.PAY, skipped="no label says whether a caption is better than no message")]
    if not np.isnan(worth).all():
        checks = [pay.check_neutral(of_label, paid).advised(MORE_LABELS)]
    checks.append(pay.check_loops(of_kind, paid, steps))
    most = pay.most_paid(paid, of_label, np.bincount(steps.caption, minlength=len(texts)))
    return conclude(checks, most, paid.together(of_label.worth <= 0)[0])
