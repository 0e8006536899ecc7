"""The trial of a judge: questions of which no two show the same message, and what the answers to them say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from motif_jax.annotation.annotator import Question
from motif_jax.annotation.backends import CaptionBackend
from motif_jax.preferences.questions import Questions
from motif_jax.preferences.store import PairDataset, fingerprint
from motif_jax.rewards.statistics import share_interval
from motif_jax.stages.check_judge.section import FLAG, CheckJudge, CheckJudgeConfig

FEWEST = 10  # questions that the rules decide as well, before agreement is told from chance
MARGINS = (0.0, 0.1, 0.2, 0.3, 0.4)  # of ties, to choose from


@dataclass(frozen=True)
class Answer:
    """A question with the judge's answer, and that of the rules."""

    first: str
    second: str
    yes: float  # P(second is better), NaN without a verdict
    turned: float  # the same by the question in the other order
    rules: float  # the same by the rules, NaN without rules for the goal


@dataclass(frozen=True)
class Share:
    """A share of some answers, with its interval; NaN if there are none."""

    value: float
    low: float
    high: float
    of: int


@dataclass(frozen=True)
class Trial:
    """What came of the trial."""

    facts: Mapping[str, Any]  # of the judge
    model: str  # its full name
    seconds: float
    answers: list[Answer]
    read: Share  # questions with a verdict in both orders
    reversals: Share | None  # questions whose better caption changes with their order; None if there is no order
    decided: Share  # questions that are no ties
    agreement: Share | None  # with the rules, where both decide; None without rules for this goal
    margins: list[tuple[float, Share, Share]]  # the last two with other margins of ties
    problem: str  # why it should not go on; "" if nothing speaks against it


def facts_of(backend: CaptionBackend, config: CheckJudgeConfig, dataset: PairDataset) -> dict[str, Any]:
    """What the trial depends on, beside its limits."""
    more = {"captions": config.annotate.captions, "dataset": fingerprint(dataset), "of": config.check_judge.questions}
    return backend.facts() | backend.labelling() | more


def share(right: np.ndarray) -> Share:
    """The share of True. [N] bool"""
    count = len(right)
    if not count:
        return Share(float("nan"), 0.0, 1.0, 0)
    return Share(float(right.mean()), *share_interval(float(right.mean()), count), count)


def choose(questions: Questions, most: int, seed: int, known: Callable[[Question], bool]) -> list[Question]:
    """Draws questions of which no two show the same message; that of a moment without one may be shown again.

    `known`: whether the rules decide a question. Half of those that are drawn are such, as far as there are enough.
    """
    drawn = np.random.default_rng([seed, 49]).permutation(len(questions)).tolist()
    asked = [Question(*questions.text(number)) for number in drawn]
    chosen: list[Question] = []
    seen: set[str] = set()
    for which, limit in (([one for one in asked if known(one)], most // 2), (asked, most)):
        for question in which:
            if len(chosen) < limit and not seen & (shown := {str(one) for one in question if one}):
                seen |= shown
                chosen.append(question)
    return chosen


def measure(answers: list[Answer], margin: float, ordered: bool) -> dict[str, Any]:
    """The figures of `Trial`. `margin`: answers this close to one half are ties; `ordered`: whether orders differ."""
    own, turned, rules = (np.array([getattr(one, name) for one in answers]) for name in ("yes", "turned", "rules"))
    mean = (own + turned) / 2
    read = ~np.isnan(mean)
    sided = read & (own != 0.5) & (turned != 0.5)
    known, right = ~np.isnan(rules) & (rules != 0.5), (mean > 0.5) == (rules > 0.5)

    def beyond(margin: float) -> tuple[Share, Share]:
        decided = read & (np.abs(mean - 0.5) > margin)
        return share(decided[read]), share(right[decided & known])

    decided, agreement = beyond(margin)
    has_rules = not np.isnan(rules).all()
    return {
        "read": share(read),
        "reversals": share(((own > 0.5) != (turned > 0.5))[sided]) if ordered else None,
        "decided": decided,
        "agreement": agreement if has_rules else None,
        "margins": [(one, *beyond(one)) for one in MARGINS] if has_rules else [],
    }


def problem_of(figures: Mapping[str, Any], limits: CheckJudge, margin: float) -> str:
    """Why a judge with these figures should not label a dataset, with what to try; "" if nothing speaks against it."""
    read, reversals, decided, agreement = (figures[name] for name in ("read", "reversals", "decided", "agreement"))
    better = [
        one for one, *of in figures["margins"] if of[0].value >= limits.decided and of[1].value >= limits.agreement
    ]
    wider = f"--config.annotate.tie_margin={better[0]}, " if better else ""
    if read.value < 0.5:
        return f"{1 - read.value:.0%} of its answers have no verdict (--config.annotate.prompt_file, .model, .mode)"
    if reversals and reversals.value > limits.reversals:
        return (
            f"the better caption of {reversals.value:.0%} of the pairs changes with their order: it names a place, and "
            "not a caption (--config.annotate.mode=rate, or another .model)"
        )
    if decided.value < limits.decided:
        return (
            f"it decides only {decided.value:.0%} of the questions, the others are ties (--config.annotate.tie_margin, "
            f"which is {margin:g}, or another .model)"
        )
    if not agreement or agreement.of < FEWEST:
        return ""
    if not agreement.low > 0.5:
        return (
            f"it agrees with the rules no more than chance, {percent(agreement)} ({wider}--config.annotate.mode=rate, "
            ".prompt_file, or a larger .model)"
        )
    if agreement.value < limits.agreement:
        return (
            f"it agrees with the rules in {percent(agreement)} of the questions, and {limits.agreement:.0%} are needed "
            f"({wider}--config.annotate.mode=rate, .prompt_file, or a larger .model; {FLAG}.agreement)"
        )
    return ""


def percent(part: Share) -> str:
    """A share with its interval."""
    return f"{part.value:.0%} [{part.low:.0%}, {part.high:.0%}]" if part.of else "none"
