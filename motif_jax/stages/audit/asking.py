"""Asks the judges the questions of an audit, each round as one stream; answers that a killed run had are kept."""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from motif_jax.annotation.annotator import Incomplete, Question
from motif_jax.annotation.asking import Answered, AskingCounts
from motif_jax.annotation.backends import CaptionBackend, OpenBackend, find_backend, open_judge, opened
from motif_jax.annotation.section import AnnotateSection
from motif_jax.audit.judge import JudgeAnswers, JudgePlan, Opinion, describe
from motif_jax.config.table import shown
from motif_jax.console import print_line
from motif_jax.envs.texts import texts_of
from motif_jax.files import write_json
from motif_jax.stages.annotate.setup import AnnotateConfig, check_section, make_backend
from motif_jax.stages.evaluate.summary import read_json
from motif_jax.structs import UserError
from motif_jax.system.metrics import Progress

WRITE_EVERY_S = 30.0
UNREADABLE = -1.0  # an answer without a verdict
SECOND = "--config.audit.second_judge"
RULES, MODEL = "rules", "model:"  # the second judge; the model's name follows


def ask(
    config: AnnotateConfig, plan: JudgePlan, file: Path, open_backend: OpenBackend = opened, stage: str = "audit"
) -> JudgeAnswers:
    """The answers to all questions, and to the repeats after them. The answer cache is not used."""
    count = len(plan.questions)
    texts = plan.questions + [plan.questions[at] for at in plan.repeats]
    if not texts:
        return JudgeAnswers(np.zeros(0), np.zeros(0))
    backend = make_backend(config, verdicts=True)
    assert isinstance(backend, CaptionBackend)  # an audit has no questions for an oracle
    with contextlib.closing(open_judge(backend, None, AskingCounts(stage), open_backend)) as asking:
        metadata = backend.flat_metadata() | {"model": asking.annotator.model, "goal": config.annotate.goal}
        stamp = hashlib.sha256(json.dumps([texts, metadata], sort_keys=True).encode()).hexdigest()
        yes_of = _kept(file, stamp, len(texts))
        print_line(f"{stage}: asks {describe(plan)}; {int((~np.isnan(yes_of)).sum()):,} are answered")
        progress = Progress(stage, len(texts), "answers", int((~np.isnan(yes_of)).sum()))
        due: dict[Question, int] = {}
        kept_s = time.monotonic()

        def keep() -> None:
            write_json(file, {"stamp": stamp, "answers": yes_of})

        def take(answered: Answered) -> None:
            nonlocal kept_s
            if not answered.answer.refused:
                yes = answered.answer.yes
                yes_of[due[answered.question]] = UNREADABLE if yes is None else yes
            if time.monotonic() - kept_s > WRITE_EVERY_S:
                keep()
                kept_s = time.monotonic()
            progress.update(int((~np.isnan(yes_of)).sum()))

        try:
            for first, last in ((0, count), (count, len(texts))):
                due = {Question(*texts[at]): at for at in range(first, last) if np.isnan(yes_of[at])}
                asking.ask(due, take)
        except Incomplete as stopped:
            done = int((~np.isnan(yes_of)).sum())
            raise UserError(
                f"{stopped}; {done:,} of {len(texts):,} questions are answered, and the same command goes on from there"
            ) from None
        finally:
            progress.close()
            keep()
    refused = int(np.isnan(yes_of).sum())
    yes_of[yes_of == UNREADABLE] = np.nan
    return JudgeAnswers(yes_of[:count], yes_of[count:], refused)


def second_section(first: AnnotateSection, named: str) -> AnnotateSection:
    """The section `annotate` of the second judge, with the first one's goal; raises UserError for an unknown judge."""
    kind, _, model = named.partition(":")
    if named != RULES and (kind + ":" != MODEL or not model):
        raise UserError(f"the second judge is rules or model:NAME, not {shown(named)} ({SECOND})")
    own = AnnotateSection(goal=first.goal, lexicon=first.lexicon, system_role=first.system_role)
    if named == RULES:
        return replace(own, backend="lexicon")
    return replace(own, backend="model", model=model, mode="rate")


def check_second(config: AnnotateConfig, named: str) -> None:
    """Raises UserError for a second judge that cannot work, or that is the first."""
    if not named:
        return
    first, second = config.annotate, second_section(config.annotate, named)
    alike = [(one.backend, one.model, one.mode) for one in (first, second)]
    if alike[0] == alike[1] or (named == RULES and find_backend(first).by_rules):
        raise UserError(f"the judge {first.backend!r} is the second judge, {shown(named)}: name another ({SECOND})")
    try:
        check_section(second, texts_of(config.env, second.lexicon))
    except UserError as error:
        raise UserError(f"the second judge cannot be asked: {error} ({SECOND})") from None


def ask_second(config: AnnotateConfig, named: str, plan: JudgePlan, file: Path) -> Opinion | str:
    """The second judge's answers about the first judge's pairs in both orders; or the reason for their lack."""
    if not named:
        return "no second judge is named"
    if not len(plan.pairs):
        return "there are no pairs of captions to ask about"
    own = JudgePlan()
    own.flips = own.both(plan.questions[at] for at in plan.flips[:, 0])
    second = AnnotateConfig(seed=config.seed, env=config.env, annotate=second_section(config.annotate, named))
    answers = ask(second, own, file, stage="audit, second judge")
    return Opinion(named, answers.mean(own.flips))


def _kept(file: Path, stamp: str, count: int) -> np.ndarray:
    """The answers of an earlier run to the same questions, NaN where it had no answer. [count]"""
    record = read_json(file) or {}
    return np.array(record["answers"] if record.get("stamp") == stamp else [None] * count, np.float64)  # None is NaN
