"""Asks the judge and, where the game has rules, these; writes what came of it."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.annotation.annotator import Incomplete, Question
from motif_jax.annotation.asking import AskingCounts
from motif_jax.annotation.backends import CaptionBackend, OpenBackend, open_judge, opened
from motif_jax.annotation.lexicon import Lexicon
from motif_jax.console import print_line
from motif_jax.preferences.questions import Questions
from motif_jax.preferences.store import PairDataset
from motif_jax.run import Run
from motif_jax.stages.annotate.setup import make_backend
from motif_jax.stages.check_judge.page import write_page
from motif_jax.stages.check_judge.section import FLAG, STAGE_NAME, CheckJudgeConfig
from motif_jax.stages.check_judge.trial import Answer, Trial, choose, facts_of, measure, percent, problem_of, share
from motif_jax.structs import UserError


def run(config: CheckJudgeConfig, workdir: Path, open_backend: OpenBackend = opened) -> None:
    """Asks, writes the page, and raises UserError if the judge is not good enough."""
    if not (workdir / "dataset").is_dir():
        raise UserError(f"there is no dataset in {str(workdir)!r} yet: run --stage=collect first (--workdir)")
    section, limits = config.annotate, config.check_judge
    backend = make_backend(config)
    assert isinstance(backend, CaptionBackend)
    rules = _rules(backend)

    def by_rules(question: Question) -> float:
        """P(second is better), NaN without rules for the goal."""
        return float(rules.answer(question).yes or 0.0) if rules else float("nan")

    dataset = PairDataset(workdir / "dataset")
    questions = Questions(dataset, section.captions)
    asked = choose(questions, limits.questions, config.seed, lambda question: by_rules(question) in (0.0, 1.0))
    counts, started = AskingCounts(STAGE_NAME), time.monotonic()
    print_line(f"{STAGE_NAME}: {len(asked):,} questions of which no two show the same message")
    ordered = backend.both_orders > 0
    # A model in this process that compares pairs counts its reversals, those of cached answers are not known.
    cache_dir = None if section.mode == "score" and not ordered else section.cache_dir
    with contextlib.closing(open_judge(backend, cache_dir, counts, open_backend)) as asking:
        yes_of: dict[Question, float] = {}

        def take(answered: Any) -> None:
            yes = answered.answer.yes
            yes_of[answered.question] = float("nan") if yes is None else yes

        try:
            asking.ask([*asked, *(question.turned for question in asked if ordered)], take)
        except Incomplete as stopped:
            raise UserError(f"{stopped}; the same command asks again") from None
        judge = asking.annotator
    answers = [
        Answer(
            one.first, str(one.second), yes_of[one], 1 - yes_of[one.turned] if ordered else yes_of[one], by_rules(one)
        )
        for one in asked
    ]
    figures = measure(answers, backend.tie_margin, ordered)
    if pairs := getattr(judge, "pairs", 0):  # a model in this process asks in both orders by itself
        figures["reversals"] = share(np.arange(pairs) < judge.reversed)  # type: ignore[attr-defined]
    problem = problem_of(figures, limits, backend.tie_margin)
    seconds = round(time.monotonic() - started, 1)
    trial = Trial(facts_of(backend, config, dataset), judge.model, seconds, answers, problem=problem, **figures)

    with Run(workdir).stage(STAGE_NAME, STAGE_NAME) as stage:
        stage.bind(config)
        page = write_page(stage, trial, section)
        stage.write("trial", trial)  # last: it marks a complete stage
    for line in lines(trial):
        print_line(f"{STAGE_NAME}: {line}")
    print_line(f"{STAGE_NAME}: {page}")
    if problem and not limits.anyway:
        raise UserError(f"this judge is not good enough: {problem}; to go on all the same: {FLAG}.anyway=True")


def _rules(backend: CaptionBackend) -> Lexicon | None:
    """The rules of the game, if it has some for this goal."""
    try:
        return Lexicon(backend.texts, backend.section.goal)
    except UserError:
        return None


def lines(trial: Trial) -> list[str]:
    """The figures in words."""
    sentences = [f"{percent(trial.decided)} of {trial.decided.of:,} questions are decided, {trial.seconds:,.0f} s"]
    if trial.reversals:
        sentences.append(f"the better caption changes with the order in {percent(trial.reversals)}")
    if trial.agreement:
        sentences.append(f"agrees with the rules in {percent(trial.agreement)} of {trial.agreement.of:,} questions")
    else:
        sentences.append("there are no rules for this goal to compare it with")
    return sentences
