"""The loop that asks a judge: past its cache, each question once, and in several samples; and the cache."""

import itertools
import math

import pytest

from motif_jax.annotation import annotator as loop
from motif_jax.annotation.annotator import PAUSE, AnswerCache, AskingCounts, Question, QuestionAnswer, read_answers
from motif_jax.files import read_json

pytestmark = pytest.mark.quick
ONE, OTHER, THIRD = Question("a", "b"), Question("c", "d"), Question("e", "f")
ABOUT = {"backend": "server", "opened": "org/Some-Model.v1", "mode": "score", "prompt": "abc"}


class Scripted:
    """Gives answers in turn, and those to the last question first."""

    closed, model = False, "scripted"

    def __init__(self, *answers):
        self.asked = []
        self._answers = itertools.cycle(answers)

    def answers(self, questions):
        self.asked = list(questions)
        yield from ((question, next(self._answers)) for question in reversed(self.asked) if question is not PAUSE)

    def close(self):
        self.closed = True


def ask(annotator, questions, cache=None):
    taken, counts = [], AskingCounts("test")
    loop.Asking(annotator, cache, counts).ask(questions, taken.append)
    return counts, taken


def test_a_known_answer_does_not_wait_for_a_silent_judge():
    """The stream of an online reward never ends: answers may not be held back until the judge gives one."""
    cache, taken = AnswerCache(ABOUT, None), []
    cache.add(ONE, QuestionAnswer(1.0))

    def endless():
        yield ONE
        assert taken == [loop.Answered(ONE, QuestionAnswer(1.0), 0.0, True)]
        raise loop.Incomplete("enough")

    with pytest.raises(loop.Incomplete):
        loop.Asking(Scripted(), cache, AskingCounts("test")).ask(endless(), taken.append)


def test_a_question_in_flight_is_not_asked_twice_and_strangers_are_left_out():
    class Liar(Scripted):
        def answers(self, questions):
            for question, answer in super().answers(questions):
                yield Question("Buy now!"), QuestionAnswer(1.0)
                yield question, answer
                yield question, QuestionAnswer(0.0)  # a second opinion

    annotator = Liar(QuestionAnswer(1.0))
    counts, taken = ask(annotator, [ONE, ONE, OTHER])
    assert annotator.asked == [ONE, OTHER]
    assert [(one.question, one.answer.yes) for one in taken] == [(OTHER, 1.0), (ONE, 1.0)]
    assert (counts.asked, counts.strangers) == (2, 4)


def test_the_answer_is_the_share_of_the_samples_with_a_verdict():
    annotator = Scripted(
        QuestionAnswer(1.0, "x", 1.0, 5, 1, 7),
        QuestionAnswer(0.0, "y", 1.0, 5, 2, 7),
        QuestionAnswer(0.5),
        QuestionAnswer(None, "?"),
    )
    sampled = loop.Sampled(annotator, 4)
    found = dict(sampled.answers([ONE, PAUSE, OTHER]))
    assert annotator.asked == [ONE] * 4 + [PAUSE] + [OTHER] * 4
    # (1 + 0 + 1/2) / 3; the answer without a verdict does not count, its tokens do.
    assert found == dict.fromkeys((ONE, OTHER), QuestionAnswer(0.5, "x", 1.0, 10, 3, 14))
    sampled.close()
    assert annotator.closed


class Rater(Scripted):
    """Says what single captions are worth, in the order of the questions; "?" cannot be read."""

    def __init__(self, worths):
        super().__init__()
        self.worths = worths

    def answers(self, questions):
        for question in filter(None, questions):
            self.asked.append(question)
            yield question, QuestionAnswer(self.worths.get(question.first), "hm")


def rate(worths, questions):
    """The answers on pairs from ratings, by question, and what the judge was asked."""
    annotator, taken = Rater(worths), []
    loop.Ratings(annotator, None, AskingCounts("test")).ask(questions, taken.append)
    return {one.question: one.answer for one in taken}, annotator.asked


def test_a_message_is_rated_once_and_pairs_follow_from_the_log_odds_if_both_can_be_read():
    questions = [ONE, PAUSE, Question("b", "c"), Question("b", ""), Question("a")]
    found, asked = rate({"": 0.2, "a": 0.8, "b": 0.5, "c": 1.0}, questions)
    assert asked == [Question(""), Question("a"), Question("b"), Question("c")]
    odds = {"": -math.log(4), "a": math.log(4), "b": 0.0, "c": math.log(1e6)}  # 1 after rounding is not endless
    worths = odds["b"] - odds["a"], odds["c"] - odds["b"], odds[""] - odds["b"], odds["a"] - odds[""]
    wanted = pytest.approx([1 / (1 + math.exp(-z)) for z in worths])
    assert [found[one].yes for one in filter(None, questions)] == wanted
    found, _ = rate({"": 0.5, "a": 0.5, "c": 0.6, "d": 0.7}, [ONE, OTHER])
    assert [(found[one].yes is None, found[one].said) for one in (ONE, OTHER)] == [(True, "hm"), (False, "")]


def test_a_pair_is_answered_when_both_of_its_messages_are_rated():
    """Otherwise a killed job without a cache would lose all ratings."""
    taken, rated = [], {}

    def take(answered):
        taken.append(answered.question)
        rated[answered.question] = [one.first for one in annotator.asked]

    annotator = Rater(dict.fromkeys(["", "a", "b", "c", "d", "f"], 0.5))  # "e" cannot be read
    loop.Ratings(annotator, None, AskingCounts("test")).ask([THIRD, OTHER, ONE, ONE, Question("d"), PAUSE], take)
    assert taken == [ONE, OTHER, Question("d"), THIRD]  # as their captions, from "" to "f", are rated
    assert rated[ONE] == ["", "a", "b"]
    assert rated[OTHER] == rated[Question("d")] == ["", "a", "b", "c", "d"]


def test_ratings_that_are_not_kept_are_asked_anew_in_each_call():
    for cache, times in ((None, 2), (AnswerCache(ABOUT, None), 1)):
        annotator = Rater(dict.fromkeys(["", "a", "b"], 0.5))
        ratings = loop.Ratings(annotator, cache, AskingCounts("test"))
        for _ in range(2):
            ratings.ask([ONE], lambda answered: None)
        assert len(annotator.asked) == 3 * times


SOME = [
    (Question("You kill the newt!", ""), QuestionAnswer(0.25, "", 0.9)),
    (Question("naïve \n {}", "\x00 ☃"), QuestionAnswer(None, "hm")),
    (Question("a", "b"), QuestionAnswer(1.0, 'Because "b".')),
    (Question("a"), QuestionAnswer(0.0)),
]


def test_answers_with_a_verdict_are_cached_for_this_job_and_later_ones(tmp_path):
    first = AnswerCache(ABOUT, tmp_path)
    for question, answer in SOME:
        first.add(question, answer)
    second = AnswerCache(ABOUT, tmp_path)  # while the first is open
    first.close()
    for cache in (first, second, AnswerCache(ABOUT, tmp_path)):
        assert [cache.get(question) for question, _ in SOME] == [
            None if answer.yes is None else QuestionAnswer(answer.yes) for _, answer in SOME
        ]
    assert list(read_answers(first.folder)) == SOME
    assert read_json(first.folder / "about.json") == ABOUT
    assert len(list(first.folder.glob("*.jsonl"))) == 1  # who adds nothing has no file
    assert first.folder.name.startswith("some-model-v1-score-")
