"""Notices that next to none of an annotator's answers can be read, so that there are no labels to learn from."""

from __future__ import annotations

import time

from motif_jax.annotation.annotator import Answer
from motif_jax.console import clean, print_line

LEAST_SHARE = 0.05  # of the answers; with fewer that can be read, what is learnt from them is worth nothing
LEAST_ANSWERS = 100  # before anything is said of their share
SAY_EVERY_S = 60.0


class Readable:
    """Counts the answers of an annotator while it is asked, and says once a minute if next to none can be read."""

    def __init__(self, stage: str):
        """`stage`: which stage asks, for the line."""
        self._stage = stage
        self._answers = self._read = 0  # since the last time that their share was looked at
        self._said_s = -SAY_EVERY_S
        self.last = ""  # the last answer that could not be read

    def take(self, answer: Answer) -> None:
        """Counts an answer."""
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
    """A sentence if next to none of at least `LEAST_ANSWERS` answers could be read; otherwise "".

    Args:
      read: answers with a verdict.
      answers: all of them.
      last: the last one without a verdict; "" if it is not known.
    """
    if answers < LEAST_ANSWERS or read >= LEAST_SHARE * answers:
        return ""
    quoted = f", the last one was {clean(repr(last))}" if last else ""
    return (
        f"{answers - read:,} of {answers:,} answers have no verdict that can be read{quoted} "
        "(--config.annotate.model, .prompt_file, .sampling.max_tokens)"
    )
