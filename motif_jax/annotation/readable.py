"""Warns when almost no answer of an annotator can be read: training would have no labels."""

from __future__ import annotations

import time

from motif_jax.annotation.annotator import QuestionAnswer
from motif_jax.console import clean, print_line

LEAST_SHARE = 0.05  # of readable answers; with fewer, the learnt reward is worthless
LEAST_ANSWERS = 100  # before the share is judged
SAY_EVERY_S = 60.0


class Readable:
    """Counts an annotator's answers, and warns at most once a minute if almost none can be read."""

    def __init__(self, stage: str):
        """`stage` begins the printed line."""
        self._stage = stage
        self._answers = self._read = 0  # since the last check
        self._said_s = -SAY_EVERY_S
        self.last = ""  # the last answer that could not be read

    def take(self, answer: QuestionAnswer) -> None:
        self._answers += 1
        if answer.yes is None:
            self.last = answer.said
        else:
            self._read += 1
        if self._answers < LEAST_ANSWERS or time.monotonic() - self._said_s < SAY_EVERY_S:
            return
        if problem := too_few(self._read, self._answers, self.last):
            self._said_s = time.monotonic()
            print_line(f"{self._stage}: {problem}")
        self._answers = self._read = 0


def too_few(read: int, answers: int, last: str) -> str:
    """The warning if `read` of `answers` answers had a verdict and that is too few; otherwise "".

    `last` is the last answer without a verdict, or "" if it is not known.
    """
    if answers < LEAST_ANSWERS or read >= LEAST_SHARE * answers:
        return ""
    quoted = f", the last one was {clean(repr(last))}" if last else ""
    return (
        f"{answers - read:,} of {answers:,} answers lack a readable verdict{quoted} "
        "(--config.annotate.model, .prompt_file, .sampling.max_tokens)"
    )
