"""Asks an annotator asynchronously: a thread sends the questions while the caller goes on.

    caller       plan(items, limit)   the items to ask next, most urgent first; replaces the previous plan
                 answers()            the answers since the last call
    the thread   takes items from the plan, at most `limit` in all; asks; hands the answers back

The caller's methods never wait. They swap one reference and empty one deque, so they need no locks. An item is taken
once: later plans skip items that are in flight, or answered and not yet fetched. The answer cache (memory.py) has all
earlier answers, so no question is asked twice.

If the annotator fails, the items in flight return to the plan, and the annotator is opened again after a pause that
doubles. `silent_s` is the time since the last answer.
"""

from __future__ import annotations

import collections
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from motif_jax.annotation.annotator import PAUSE, Annotator, Incomplete, Question, QuestionAnswer
from motif_jax.annotation.memory import AnswerMemory
from motif_jax.structs import UserError

FIRST_PAUSE_S, MAX_PAUSE_S = 1.0, 60.0  # before the annotator is opened again
TICK_S = 0.05  # the thread waits this long for a plan before it checks for answers
CLOSING_S = 5.0
Open = Callable[[], tuple[Annotator, AnswerMemory]]


class Item(NamedTuple):
    """A question with the caller's number for it; asking it again is another attempt."""

    number: int
    attempt: int
    question: Question


class Answered(NamedTuple):
    """An answered item."""

    item: Item
    answer: QuestionAnswer
    seconds: float  # from question to answer; 0 from the answer cache
    cached: bool  # the answer is from the answer cache


class NextItems(NamedTuple):
    """The items to ask next."""

    items: Sequence[Item] = ()
    limit: int = 0  # on the number of items ever taken


class Stream:
    """Asks an annotator in a thread, which runs from the constructor to `close`."""

    immediate = False  # whether `answers` returns everything that was planned

    def __init__(self, open_judge: Open, begun: tuple[Annotator, AnswerMemory] | None = None, taken: int = 0):
        """Starts the thread.

        Args:
          open_judge: opens the annotator and its answer cache; may raise UserError or Incomplete.
          begun: an earlier result of `open_judge` to begin with; None: the thread opens the annotator.
          taken: items taken in earlier runs, which count towards the limit.
        """
        self._open, self._begun = open_judge, begun
        self.taken = taken  # items ever taken
        self.answered = 0  # questions that the annotator answered, without cached ones
        self.problem = ""  # the reason why the annotator cannot be asked now
        self.failures = self.strangers = 0  # failures of the annotator; answers to questions that were not asked
        self._plan, self._place = NextItems(), 0  # the thread's plan, and its position there
        self._planned = self._plan  # the newest plan
        self._seen: set[tuple[int, int]] = set()  # items taken that are still in the plan
        self._flight: dict[Question, tuple[list[Item], float]] = {}  # items in flight, with the time of asking
        self._back: collections.deque[Answered] = collections.deque()
        self._last_s = time.monotonic()  # time of the last answer, or of the last moment with nothing in flight
        self._stop, self._wake = threading.Event(), threading.Event()
        self._error: Exception | None = None
        self._annotator: Annotator | None = None
        self._thread = threading.Thread(target=self._run, name="judge", daemon=True)
        self._thread.start()

    # ---- called by the caller

    def plan(self, items: Sequence[Item], limit: int) -> None:
        """Replaces the plan; `limit` bounds the number of items taken in all runs together."""
        self._planned = NextItems(items, limit)
        self._wake.set()

    def answers(self) -> list[Answered]:
        """The answers since the last call. Raises errors of the thread, except failures of the annotator."""
        if self._error is not None:
            raise self._error
        return [self._back.popleft() for _ in range(len(self._back))]

    @property
    def under_way(self) -> int:
        return len(self._flight)

    @property
    def silent_s(self) -> float:
        """Seconds without an answer while questions are in flight or cannot be asked; otherwise 0."""
        return time.monotonic() - self._last_s if self._flight or self.problem else 0.0

    def close(self) -> None:
        """Ends the thread; questions in flight are dropped."""
        self._stop.set()
        self._wake.set()
        closed = self._annotator
        if closed is not None:
            closed.close()  # wakes a thread that waits for answers
        self._thread.join(CLOSING_S)
        if self._annotator is not None and self._annotator is not closed:
            self._annotator.close()

    # ---- run by the thread

    def _run(self) -> None:
        pause_s = FIRST_PAUSE_S
        while not self._stop.is_set():
            before, memory = self.answered, None
            try:
                self._annotator, memory = self._begun or self._open()
                self._begun, self.problem = None, ""
                self._ask(self._annotator, memory)
            except (UserError, Incomplete) as failed:
                self.problem = str(failed)
            except Exception as error:
                if not self._stop.is_set():  # an annotator that is closed while it works may raise anything
                    self._error = error
                return
            finally:
                self._put_back()
                self._finish(memory)
            self.failures += not self._stop.is_set()
            pause_s = FIRST_PAUSE_S if self.answered > before else min(2 * pause_s, MAX_PAUSE_S)
            self._stop.wait(pause_s)

    def _ask(self, annotator: Annotator, memory: AnswerMemory) -> None:
        for question, answer in annotator.answers(self._questions(memory)):
            now = time.monotonic()
            items, asked_s = self._flight.pop(question, ([], now))
            if not items:
                self.strangers += 1
                continue
            self._last_s, self.problem = now, ""
            self.answered += 1
            self._back.extend(Answered(item, answer, now - asked_s, False) for item in items)
            memory.add(question, answer)

    def _questions(self, memory: AnswerMemory) -> Iterator[Question | None]:
        while not self._stop.is_set():
            item = self._next()
            if item is None:
                memory.write()
                if not self._flight and not self.problem:
                    self._last_s = time.monotonic()
                self._wake.wait(TICK_S)
                self._wake.clear()
                yield PAUSE
                continue
            known = memory.get(item.question)
            if known is not None:
                self._back.append(Answered(item, known, 0.0, True))
                continue
            items, _ = self._flight.setdefault(item.question, ([], time.monotonic()))
            items.append(item)
            if len(items) == 1:
                yield item.question

    def _next(self) -> Item | None:
        """Takes the next item of the newest plan; None if every item is taken or the limit is reached."""
        if self._planned is not self._plan:
            self._plan, self._place = self._planned, 0
            self._seen &= {item[:2] for item in self._plan.items}
        while self._place < len(self._plan.items) and self.taken < self._plan.limit:
            item = self._plan.items[self._place]
            self._place += 1
            if item[:2] not in self._seen:
                self._seen.add(item[:2])
                self.taken += 1
                return item
        return None

    def _put_back(self) -> None:
        """Returns the items in flight to the plan."""
        lost = [item for items, _ in self._flight.values() for item in items]
        self._seen -= {item[:2] for item in lost}
        self.taken -= len(lost)
        self._flight, self._place = {}, 0

    def _finish(self, memory: AnswerMemory | None) -> None:
        """Closes the memory and, unless `close` will do that, the annotator."""
        if self._annotator is not None and not self._stop.is_set():
            self._annotator.close()
            self._annotator = None
        if memory is not None:
            try:
                memory.close()
            except UserError as refused:  # the disk is full, or the like
                self.problem = str(refused)


class Direct:
    """The same interface without a thread: `plan` asks, and returns when everything is answered."""

    immediate = True
    problem, failures, strangers, under_way, silent_s = "", 0, 0, 0, 0.0

    def __init__(self, open_judge: Open, taken: int):
        """Opens the annotator; see `Stream`."""
        self._annotator, self._memory = open_judge()
        self.taken, self.answered = taken, 0
        self._back: list[Answered] = []

    def plan(self, items: Sequence[Item], limit: int) -> None:
        """See `Stream`. Raises Incomplete if the annotator fails."""
        items = items[: max(limit - self.taken, 0)]
        asked: dict[Question, list[Item]] = {}
        for item in items:
            known = self._memory.get(item.question)
            if known is None:
                asked.setdefault(item.question, []).append(item)
            else:
                self._back.append(Answered(item, known, 0.0, True))
        begun = time.monotonic()
        for question, answer in self._annotator.answers(list(asked)):
            self._memory.add(question, answer)
            self.answered += 1
            items_of = asked.pop(question, [])  # empty if this question was not asked
            self._back += [Answered(item, answer, time.monotonic() - begun, False) for item in items_of]
        self.taken += len(items)

    def answers(self) -> list[Answered]:
        """The answers to the plans since the last call, ordered by item number."""
        found, self._back = sorted(self._back, key=lambda answered: answered.item[:2]), []
        return found

    def close(self) -> None:
        """Closes the annotator and the answer cache."""
        self._annotator.close()
        self._memory.close()
