"""Asks the judge the questions of an audit, each round as one stream; answers that a killed run had are kept."""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from pathlib import Path

import numpy as np
from ml_collections import ConfigDict

from motif_jax.annotation.annotator import Incomplete, Question
from motif_jax.annotation.asking import Answered, AskingCounts
from motif_jax.annotation.backends import CaptionBackend, OpenBackend, open_judge, opened
from motif_jax.audit.judge import JudgeAnswers, JudgePlan, describe
from motif_jax.console import print_line
from motif_jax.files import write_json
from motif_jax.stages.annotate.setup import make_backend
from motif_jax.stages.evaluate.summary import read_json
from motif_jax.structs import UserError
from motif_jax.system.metrics import Progress

WRITE_EVERY_S = 30.0
UNREADABLE = -1.0  # an answer without a verdict


def ask(
    config: ConfigDict,
    plan: JudgePlan,
    file: Path,
    open_backend: OpenBackend = opened,
    stage: str = "audit",
) -> JudgeAnswers:
    """The answers to all questions, and to the repeats after them. The answer cache is not used."""
    count = len(plan.questions)
    texts = plan.questions + [plan.questions[at] for at in plan.repeats]
    if not texts:
        return JudgeAnswers(np.zeros(0), np.zeros(0))
    backend = make_backend(config)
    if not isinstance(backend, CaptionBackend):
        raise UserError(
            f"the annotator {config.annotate.backend!r} compares numbers of the game, so there is no judge of captions "
            "to ask (--config.annotate.backend)"
        )
    with contextlib.closing(open_judge(backend, None, AskingCounts(stage), open_backend)) as asking:
        metadata = backend.facts() | {"model": asking.annotator.model, "goal": config.annotate.goal}
        stamp = hashlib.sha256(json.dumps([texts, metadata], sort_keys=True).encode()).hexdigest()
        found = _kept(file, stamp, len(texts))
        print_line(f"{stage}: asks {describe(plan)}; {int((~np.isnan(found)).sum()):,} are answered")
        progress = Progress(stage, len(texts), "answers", int((~np.isnan(found)).sum()))
        due: dict[Question, int] = {}
        kept_s = time.monotonic()

        def keep() -> None:
            write_json(file, {"stamp": stamp, "answers": found})

        def take(answered: Answered) -> None:
            nonlocal kept_s
            if not answered.answer.refused:
                yes = answered.answer.yes
                found[due[answered.question]] = UNREADABLE if yes is None else yes
            if time.monotonic() - kept_s > WRITE_EVERY_S:
                keep()
                kept_s = time.monotonic()
            progress.update(int((~np.isnan(found)).sum()))

        try:
            for first, last in ((0, count), (count, len(texts))):
                due = {Question(*texts[at]): at for at in range(first, last) if np.isnan(found[at])}
                asking.ask(due, take)
        except Incomplete as stopped:
            done = int((~np.isnan(found)).sum())
            raise UserError(
                f"{stopped}; {done:,} of {len(texts):,} questions are answered, and the same command goes on from there"
            ) from None
        finally:
            progress.close()
            keep()
    refused = int(np.isnan(found).sum())
    found[found == UNREADABLE] = np.nan
    return JudgeAnswers(found[:count], found[count:], refused)


def _kept(file: Path, stamp: str, count: int) -> np.ndarray:
    """The answers of an earlier run to the same questions, NaN where there is none. [count]"""
    record = read_json(file) or {}
    answers = record.get("answers") if record.get("stamp") == stamp else None
    if answers is None or len(answers) != count:
        return np.full(count, np.nan)
    return np.array([np.nan if answer is None else answer for answer in answers], np.float64)
