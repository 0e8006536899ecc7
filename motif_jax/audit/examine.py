"""The whole audit: from what is known of a reward to the questions for its judge, and from the answers to findings.

    plan = make_plan(evidence, limits, seed)
    answers = ...                               # the judge's, to plan.questions and plan.repeats
    found = examine(evidence, plan, answers)

Where evidence is missing, a sentence gives the reason, and the checks that need this evidence repeat it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from motif_jax.audit import labels, pay, wholes
from motif_jax.audit.captions import Captions
from motif_jax.audit.figures import WORSE, Figures, check_figures
from motif_jax.audit.findings import Check, Findings, conclude
from motif_jax.audit.judge import (
    AGAIN,
    ANSWERED,
    CIRCLES,
    OPINION,
    ORDERS,
    JudgeAnswers,
    JudgePlan,
    Opinion,
    QuestionLimits,
    ask_for_consistency,
    ask_for_worth,
    check_judge,
    check_opinion,
    choose_pool,
    verdicts,
    with_asked_worth,
)
from motif_jax.audit.pay import Paid, Steps

PAID = pay.PAY, pay.INFLATED, pay.LOOPS, pay.HELD
JUDGED = ANSWERED, ORDERS, AGAIN, CIRCLES, OPINION


class Labels(NamedTuple):
    """Labelled pairs of captions."""

    pairs: np.ndarray  # [N, 2] int
    target: np.ndarray  # P(second is better); NaN where unknown. [N]


class Wholes(NamedTuple):
    """The same games, played by random play and by the agent."""

    early: list[str]  # the episodes of random play in words. [P]
    late: list[str]
    early_return: np.ndarray  # learnt returns. [P]
    late_return: np.ndarray


class Evidence(NamedTuple):
    """What is known of a reward; a string says why something is not."""

    captions: Captions
    rules: bool  # whether the worth of captions is known by rules, rather than asked
    steps: Steps | str  # of the agent
    still: np.ndarray  # whether nothing happens in these steps, see `pay.check_held`. [T] bool
    figures: Figures | str  # of the world
    labels: Labels | str
    wholes: Wholes | str
    judge: str = ""  # why no judge can be asked
    soft: bool = False  # whether the judge answers with probabilities

    def seen(self) -> tuple[np.ndarray, np.ndarray]:
        """How much pay each caption got, and how often it was seen. [U] each"""
        count = len(self.captions.texts)
        if isinstance(self.steps, Steps):
            caption, weights = self.steps.caption, np.maximum(self.steps.pay, 0)
            return np.bincount(caption, weights, count), np.bincount(caption, minlength=count)
        shown = self.labels.pairs.ravel() if isinstance(self.labels, Labels) else np.zeros(0, np.int64)
        return np.zeros(count), np.bincount(shown, minlength=count)


class Audited(NamedTuple):
    """The result."""

    findings: Findings
    captions: Captions  # with the worth that the judge gave them
    paid: Paid | None


def make_plan(evidence: Evidence, limits: QuestionLimits, seed: int) -> JudgePlan:
    """The questions for the judge; none if there is no judge to ask."""
    plan, captions = JudgePlan(), evidence.captions
    if evidence.judge:
        return plan
    pay_of, times = evidence.seen()
    plan.pool = choose_pool(captions, pay_of, times)
    if not evidence.rules and captions.shows_nothing >= 0:
        ask_for_worth(plan, captions)
    ask_for_consistency(plan, captions, limits, np.random.default_rng([seed, 25]))
    if isinstance(evidence.wholes, Wholes):
        plan.wholes = plan.both(zip(evidence.wholes.early, evidence.wholes.late, strict=True))
    return plan


def examine(
    evidence: Evidence, plan: JudgePlan, answers: JudgeAnswers, second: Opinion | str = "no second judge is named"
) -> Audited:
    """The findings about a reward and its judge; `second`: of another judge, or why there is none."""
    captions = evidence.captions
    if len(plan.worth):
        captions = with_asked_worth(captions, plan, answers, evidence.soft)
    known, found = evidence.figures, None
    checks = [Check(WORSE, skipped=known) if isinstance(known, str) else check_figures(known)]
    if isinstance(evidence.steps, Steps):
        found = pay.share_out(evidence.steps, captions)
        checks += _check_pay(captions, found, evidence.steps, evidence.still)
    else:
        checks += [Check(name, skipped=evidence.steps) for name in PAID]
    checks.append(_check_labels(evidence, plan, answers))
    if evidence.judge:
        checks += [Check(name, skipped=evidence.judge) for name in (*JUDGED, wholes.NAME)]
    else:
        checks += check_judge(plan, answers)
        if isinstance(second, str):
            checks.append(Check(OPINION, skipped=f"{second} (--config.audit.second_judge)"))
        else:
            checks.append(check_opinion(plan, answers, captions, evidence.seen()[0], second))
        if isinstance(evidence.wholes, Wholes):
            returns = evidence.wholes.early_return, evidence.wholes.late_return
            checks.append(wholes.check_wholes(plan, answers, *returns))
        else:
            checks.append(Check(wholes.NAME, skipped=evidence.wholes))
    return Audited(conclude(checks), captions, found)


def _check_pay(captions: Captions, paid: Paid, steps: Steps, still: np.ndarray) -> list[Check]:
    episodes = len(paid.total)
    if episodes < pay.FEWEST:
        why = f"{episodes} episodes were evaluated, and {pay.FEWEST} are needed (--config.evaluate.episodes)"
    elif not paid.total.sum():
        why = "no step of these episodes is rewarded"
    elif not any(captions.texts):
        why = "this world shows no captions"
    else:
        why = ""
    if why:
        return [Check(name, skipped=why) for name in PAID]
    checks = [pay.check_loops(captions, paid, steps), pay.check_held(captions, paid, steps, still)]
    if np.isnan(captions.worth).all():
        why = "the judge's worth of the captions is not known"
        return [*(Check(name, skipped=why) for name in (pay.PAY, pay.INFLATED)), *checks]
    values = group_values(captions, np.bincount(steps.caption, minlength=len(captions.texts)))
    return [pay.check_neutral(captions, paid), pay.check_inflation(captions, paid, values), *checks]


def _check_labels(evidence: Evidence, plan: JudgePlan, answers: JudgeAnswers) -> Check:
    """By the annotation's labels; where they are not known, by the answers about pairs in both orders."""
    if isinstance(evidence.labels, Labels):
        return labels.check_inversions(evidence.captions, *evidence.labels)
    if not len(plan.flips):
        return Check(labels.NAME, skipped=evidence.labels)
    asked = labels.check_inversions(evidence.captions, plan.pairs, 0.5 + verdicts(answers.mean(plan.flips)) / 2)
    if asked.skipped:
        return asked._replace(skipped=f"{asked.skipped}, and {evidence.labels}")
    return asked._replace(about=f"{asked.about}, asked for this audit, as {evidence.labels}")


def group_values(captions: Captions, times: np.ndarray) -> np.ndarray:
    """The mean reward of each group over the times that its captions were seen; NaN where unknown. [G]"""
    known, size = ~np.isnan(captions.values) & (times > 0), len(captions.names)
    weights = np.where(known, times, 0)
    total = np.bincount(captions.group, weights, size)
    sums = np.bincount(captions.group, weights * np.nan_to_num(captions.values), size)
    return np.divide(sums, total, out=np.full(size, np.nan), where=total > 0)
