"""A judge that is asked on the side: nothing waits for it, nothing is asked twice, and it may fail."""

import threading
from contextlib import closing

import pytest
from chat_server import ChatServer, connect
from conftest import LONG_S, wait_for
from nethack_texts import LEXICON
from small_dataset import EVENTS

from motif_jax.annotation import stream
from motif_jax.annotation.annotator import PAUSE, AnswerCache, Asking, AskingCounts, Question
from motif_jax.annotation.stream import Item, Stream

pytestmark = pytest.mark.usefixtures("short_pauses")

ITEMS = [Item(number, 0, Question(text)) for number, text in enumerate(EVENTS)]
NO_LIMIT = 2**62


class Gated:
    """Answers one question each time that `gate` is released; `asked` has what it took, `pauses` how often nothing."""

    model = ""

    def __init__(self, reply=LEXICON.answer, open_gate=False):
        self.asked, self.gate, self.reply, self.open_gate = [], threading.Semaphore(0), reply, open_gate
        self.pauses = 0

    def answers(self, questions):
        for question in questions:
            if question is PAUSE:
                self.pauses += 1
                continue
            self.asked.append(question)
            wait_for(lambda: self.open_gate or self.gate.acquire(blocking=False))
            reply = self.reply(question)
            if isinstance(reply, Exception):
                raise reply
            yield question, reply

    def close(self):
        self.open_gate = True


def opening(annotator, cache=None, about=None):
    return lambda counts: Asking(annotator, AnswerCache(about, cache) if about else None, counts)


def begin(open_judge, **options):
    return Stream(open_judge, AskingCounts("test"), **options)


def collect(judge, number):
    found = []
    wait_for(lambda: found.extend(judge.answers()) or len(found) >= number)
    return found


def all_is_asked(annotator):
    """Waits until the thread finds nothing to ask in a plan that was made before: the first pause may be older."""
    before = annotator.pauses
    wait_for(lambda: annotator.pauses >= before + 2)


@pytest.mark.differs(
    "oni", there="each minibatch queues every message without a label again", here="no question is asked twice"
)
def test_answers_come_back_and_nothing_is_asked_twice():
    annotator = Gated(open_gate=True)
    with closing(begin(opening(annotator))) as judge:
        for _ in range(20):
            judge.plan(ITEMS, NO_LIMIT)
        found = collect(judge, len(ITEMS))
        judge.plan(ITEMS[::-1], NO_LIMIT)  # they were answered, and the caller has not taken them from the plan yet
        all_is_asked(annotator)
        assert judge.answers() == []
    assert annotator.asked == [item.question for item in ITEMS]
    assert [item for item, _ in found] == ITEMS
    assert all(one.answer == LEXICON.answer(item.question) for item, one in found)
    assert judge.taken == judge.counts.asked == len(ITEMS)
    assert judge.silent_s == 0


@pytest.mark.parametrize(("plans", "asked"), [([[7, 0, 6]], [0, 7, 6]), ([[2, 3], [0, 1, 2]], [0, 1, 2])])
def test_a_new_plan_replaces_all_but_the_question_in_flight_which_is_asked_once(plans, asked):
    """Also where a plan in between omits it."""
    annotator = Gated()
    with closing(begin(opening(annotator))) as judge:
        judge.plan(ITEMS[:5], NO_LIMIT)
        wait_for(lambda: annotator.asked)
        for plan in plans:
            judge.plan([ITEMS[number] for number in plan], NO_LIMIT)
        annotator.open_gate = True
        found = collect(judge, 3)
        all_is_asked(annotator)
        assert not judge.answers()
    assert [item.number for item, _ in found] == asked
    assert annotator.asked == [ITEMS[number].question for number in asked]


@pytest.mark.differs(
    "oni", there="the waiting messages are asked only while new ones arrive", here="they are always asked"
)
def test_waiting_questions_are_asked_without_a_new_plan():
    annotator = Gated()
    with closing(begin(opening(annotator))) as judge:
        judge.plan(ITEMS, NO_LIMIT)
        for item in ITEMS:
            annotator.gate.release()
            assert [one for one, _ in collect(judge, 1)] == [item]
        all_is_asked(annotator)


def test_closing_does_not_wait_for_a_server_that_never_answers(monkeypatch):
    monkeypatch.setattr(stream, "CLOSING_S", LONG_S)  # so that closing would hang if it waited
    with ChatServer(lambda number, body: f"slow {LONG_S}") as chat:
        judge = begin(lambda counts: Asking(connect(chat.url), None, counts))
        judge.plan([Item(0, 0, Question("a", "b"))], NO_LIMIT)
        wait_for(lambda: chat.asked)
        judge.close()
        assert all(thread.name != "judge" for thread in threading.enumerate())


def test_without_a_thread_all_is_answered_at_once(tmp_path):
    annotator = Gated(open_gate=True)
    about = {"backend": "server", "opened": "m", "mode": "reason"}
    judge = begin(opening(annotator, tmp_path, about), immediate=True, taken=1)
    judge.plan([*ITEMS, ITEMS[0]._replace(number=99)], len(ITEMS))
    found = judge.answers()
    assert [item.number for item, _ in found] == list(range(len(ITEMS) - 1))  # one was taken before
    judge.plan(ITEMS[:1], NO_LIMIT)
    assert [(one.cached, one.answer.yes) for _, one in judge.answers()] == [(True, found[0][1].answer.yes)]
    judge.close()
