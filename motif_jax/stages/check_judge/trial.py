"""The trial of a judge: questions that share no message, asked in both orders, beside the rules of the game."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.annotation.annotator import Question
from motif_jax.annotation.asking import AskingCounts
from motif_jax.annotation.backends import CaptionBackend, OpenBackend, open_judge, opened
from motif_jax.annotation.lexicon import Lexicon
from motif_jax.console import print_line
from motif_jax.preferences.questions import Questions
from motif_jax.preferences.store import PairDataset
from motif_jax.rewards.statistics import share_interval
from motif_jax.run import Run
from motif_jax.stages.annotate.setup import make_backend
from motif_jax.stages.check_judge import FLAG, STAGE_NAME, CheckJudge, CheckJudgeConfig
from motif_jax.structs import UserError

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


def share(right: np.ndarray) -> Share:
    """The share of True. [N] bool"""
    count = len(right)
    if not count:
        return Share(float("nan"), 0.0, 1.0, 0)
    return Share(float(right.mean()), *share_interval(float(right.mean()), count), count)


def choose(questions: Questions, most: int, seed: int) -> list[Question]:
    """Draws questions of which no two show the same message; that of a moment without one may be shown again."""
    chosen: list[Question] = []
    seen: set[str] = set()
    for number in np.random.default_rng([seed, 49]).permutation(len(questions)).tolist():
        captions = questions.text(number)
        if len(chosen) < most and not seen & (shown := {one for one in captions if one}):
            seen |= shown
            chosen.append(Question(*captions))
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


def problem_of(found: Mapping[str, Any], limits: CheckJudge, margin: float) -> str:
    """Why a judge with these figures should not label a dataset, with what to try; "" if nothing speaks against it."""
    read, reversals, decided, agreement = (found[name] for name in ("read", "reversals", "decided", "agreement"))
    better = [one for one, *of in found["margins"] if of[0].value >= limits.decided and of[1].value >= limits.agreement]
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
    if agreement and not agreement.low > 0.5:
        return (
            f"it agrees with the rules no more than chance, {percent(agreement)} ({wider}--config.annotate.mode=rate, "
            ".prompt_file, or a larger .model)"
        )
    if agreement and agreement.value < limits.agreement:
        return (
            f"it agrees with the rules in {percent(agreement)} of the questions, and {limits.agreement:.0%} are needed "
            f"({wider}--config.annotate.mode=rate, .prompt_file, or a larger .model; {FLAG}.agreement)"
        )
    return ""


def percent(found: Share) -> str:
    """A share with its interval."""
    return f"{found.value:.0%} [{found.low:.0%}, {found.high:.0%}]" if found.of else "none"


def run(config: CheckJudgeConfig, workdir: Path, open_backend: OpenBackend = opened) -> None:
    """Asks, writes the page, and raises UserError if the judge is not good enough."""
    from motif_jax.stages.check_judge.page import write_page

    if not (workdir / "dataset").is_dir():
        raise UserError(f"there is no dataset in {str(workdir)!r} yet: run --stage=collect first (--workdir)")
    section, limits = config.annotate, config.check_judge
    backend = make_backend(config)
    assert isinstance(backend, CaptionBackend)
    asked = choose(Questions(PairDataset(workdir / "dataset"), section.captions), limits.questions, config.seed)
    rules = _by_rules(backend, asked)
    counts, started = AskingCounts(STAGE_NAME), time.monotonic()
    print_line(f"{STAGE_NAME}: {len(asked):,} questions of which no two show the same message")
    with contextlib.closing(open_judge(backend, section.cache_dir, counts, open_backend)) as asking:
        found: dict[Question, float] = {}

        def take(answered: Any) -> None:
            yes = answered.answer.yes
            found[answered.question] = float("nan") if yes is None else yes

        ordered = backend.both_orders > 0
        asking.ask([*asked, *(question.turned for question in asked if ordered)], take)
        model, reversed_within = asking.annotator.model, getattr(asking.annotator, "reversals", None)
    answers = [
        Answer(one.first, str(one.second), found[one], 1 - found[one.turned] if ordered else found[one], rules[one])
        for one in asked
    ]
    figures = measure(answers, backend.tie_margin, ordered)
    if reversed_within:  # a model in this process has answered each question in both orders
        figures["reversals"] = Share(*reversed_within)
    problem = problem_of(figures, limits, backend.tie_margin)
    seconds = round(time.monotonic() - started, 1)
    trial = Trial(facts=backend.facts(), model=model, seconds=seconds, answers=answers, problem=problem, **figures)

    with Run(workdir).stage(STAGE_NAME, STAGE_NAME) as stage:
        stage.bind(config)
        stage.write("trial", trial)
        page = write_page(stage, trial, section)
    for line in lines(trial):
        print_line(f"{STAGE_NAME}: {line}")
    print_line(f"{STAGE_NAME}: {page}")
    if problem and not limits.anyway:
        raise UserError(f"this judge is not good enough: {problem}; to go on all the same: {FLAG}.anyway=True")


def _by_rules(backend: CaptionBackend, asked: list[Question]) -> dict[Question, float]:
    """P(second is better) by the rules of the game, NaN if it has none for this goal."""
    try:
        lexicon = Lexicon(backend.texts, backend.section.goal)
    except UserError:
        return dict.fromkeys(asked, float("nan"))
    return {question: float(answer.yes or 0.0) for question, answer in lexicon.answers(asked)}


def lines(trial: Trial) -> list[str]:
    """The figures in words."""
    found = [f"{percent(trial.decided)} of {trial.decided.of:,} questions are decided, {trial.seconds:,.0f} s"]
    if trial.reversals:
        found.append(f"the better caption changes with the order in {percent(trial.reversals)}")
    if trial.agreement:
        found.append(f"agrees with the rules in {percent(trial.agreement)} of {trial.agreement.of:,} questions")
    else:
        found.append("there are no rules for this goal to compare it with")
    return found
