"""A judge of one's own that counts as one with JAX, so that an online reward opens it in a process of its own."""

import sys
import time
from pathlib import Path

from motif_jax.annotation.annotator import PAUSE, QuestionAnswer
from motif_jax.annotation.backends import CaptionBackend


def answer_to(question):
    """An answer without probability theory."""
    return QuestionAnswer(len(question.first) % 7 / 7, question.second or "", 0.5, 3)


class Gated(CaptionBackend):
    """`annotate.model` is a folder: the judge answers once it has a file `open`, and writes `busy` when it is asked."""

    is_model = uses_jax = True
    weights = ""

    def metadata(self):
        return {}

    def check(self):
        pass

    def open(self):
        return GatedAnnotator(Path(self.section.model))


class GatedAnnotator:
    model = "gated"

    def __init__(self, folder):
        self._folder = folder

    def answers(self, questions):
        for question in questions:
            (self._folder / "busy").touch()
            while not (self._folder / "open").exists():
                time.sleep(0.01)
            if (self._folder / "exit").exists():
                sys.exit(0)
            if question is not PAUSE:
                yield question, answer_to(question)

    def close(self):
        """Has nothing to release."""
