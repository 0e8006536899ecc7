"""Several answers to each question."""

import itertools

import pytest

from motif_jax.annotation.annotator import PAUSE, Question, QuestionAnswer
from motif_jax.annotation.samples import Sampled, mean_of

pytestmark = pytest.mark.quick
ONE, OTHER = Question("a", "b"), Question("c", "d")


class Scripted:
    """Gives answers in turn, and those to the last question first."""

    closed = False

    def __init__(self, *answers):
        self.asked = []
        self._answers = itertools.cycle(answers)

    def answers(self, questions):
        self.asked = list(questions)
        yield from ((question, next(self._answers)) for question in reversed(self.asked) if question is not PAUSE)

    def close(self):
        self.closed = True


def test_the_answer_is_the_share_of_the_samples_with_a_verdict():
    annotator = Scripted(
        QuestionAnswer(1.0, "x", 1.0, 5, 1, 7),
        QuestionAnswer(0.0, "y", 1.0, 5, 2, 7),
        QuestionAnswer(0.5),
        QuestionAnswer(None, "?"),
    )
    sampled = Sampled(annotator, 4)
    found = dict(sampled.answers([ONE, PAUSE, OTHER]))
    assert annotator.asked == [ONE] * 4 + [PAUSE] + [OTHER] * 4
    # (1 + 0 + 1/2) / 3; the answer without a verdict does not count, its tokens do.
    assert found == dict.fromkeys((ONE, OTHER), QuestionAnswer(0.5, "x", 1.0, 10, 3, 14))
    sampled.close()
    assert annotator.closed


def test_without_any_verdict_there_is_none():
    assert mean_of([QuestionAnswer(None, "one"), QuestionAnswer(None, "two")]) == QuestionAnswer(None, "one")
    assert mean_of([QuestionAnswer(None, "one"), QuestionAnswer(0.0, "two"), QuestionAnswer(1.0)]) == QuestionAnswer(
        0.5, "two"
    )
