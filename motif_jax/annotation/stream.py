"""A judge that is asked on the side: a thread puts questions to an annotator while the caller goes on.

    caller       plan(items, limit)   what to ask next, the most urgent first; replaces the plan before
                 answers()            what has come back since the last call
    the thread   takes items from the plan, never more than `limit` in all; asks; hands the answers back

Neither of the caller's methods waits. They swap one reference and empty one deque, so there are no locks. An item is
taken once: what is under way, or was answered and not yet fetched, is skipped in later plans. Questions that were ever
answered are in the answer cache and are not asked again (memory.py).

If the annotator fails, what is under way goes back into the plan, and the annotator is opened again after a pause that
doubles. `silent_s` tells for how long nothing has come.
"""

from __future__ import annotations

import collections
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from motif_jax.annotation.annotator import PAUSE, Annotator, Answer, Incomplete, Question
from motif_jax.annotation.memory import AnswerMemory
from motif_jax.structs import UserError

FIRST_PAUSE_S, MAX_PAUSE_S = 1.0, 60.0  # before the annotator is opened again
TICK_S = 0.05  # how long the thread waits for a plan before it looks for answers
CLOSING_S = 5.0
Open = Callable[[], tuple[Annotator, AnswerMemory]]


class Item(NamedTuple):
    """A question with the caller's number for it. Asked again, the question is another attempt."""

    number: int
    attempt: int
    question: Question


class Answered(NamedTuple):
    """An item that has come back."""

    item: Item
    answer: Answer
    seconds: float  # from question to answer; 0 from the answer cache
    cached: bool


class Plan(NamedTuple):
    """What to ask next."""

    items: Sequence[Item] = ()
    limit: int = 0  # on all items ever taken


class Stream:
    """Asks an annotator in a thread of its own, between its making and `close`."""

    immediate = False  # whether `answers` has all that was planned

    def __init__(self, open_judge: Open, begun: tuple[Annotator, AnswerMemory] | None = None, taken: int = 0):
        """Starts the thread.

        Args:
          open_judge: opens the annotator and its answer cache; may raise UserError or Incomplete.
          begun: what `open_judge` has returned before, to begin with; None: the thread opens it.
          taken: items taken in earlier runs, which count towards the limit.
        """
        self._open, self._begun = open_judge, begun
        self.taken = taken  # items ever taken
        self.answered = 0  # questions, by the annotator itself
        self.problem = ""  # why the annotator cannot be asked now
        self.failures = self.strangers = 0  # times that it failed; answers to questions that nobody asked
        self._plan, self._place = Plan(), 0  # the thread's own place in it
        self._planned = self._plan  # the newest
        self._seen: set[tuple[int, int]] = set()  # items taken, until a plan no longer has them
        self._flight: dict[Question, tuple[list[Item], float]] = {}  # under way, with the time of asking
        self._back: collections.deque[Answered] = collections.deque()
        self._last_s = time.monotonic()  # when something last came back, or there was nothing to wait for
        self._stop, self._wake = threading.Event(), threading.Event()
        self._error: Exception | None = None
        self._annotator: Annotator | None = None
        self._thread = threading.Thread(target=self._run, name="judge", daemon=True)
        self._thread.start()

    # ---- the caller's

    def plan(self, items: Sequence[Item], limit: int) -> None:
        """Replaces what is to be asked; `limit` bounds the number of items taken since the first of all runs."""
        self._planned = Plan(items, limit)
        self._wake.set()

    def answers(self) -> list[Answered]:
        """What has come back since the last call. Raises what went wrong in the thread, other than the annotator."""
        if self._error is not None:
            raise self._error
        return [self._back.popleft() for _ in range(len(self._back))]

    @property
    def under_way(self) -> int:
        """Questions that the annotator has now."""
        return len(self._flight)

    @property
    def silent_s(self) -> float:
        """For how long nothing has come although something was asked, or could not be."""
        return time.monotonic() - self._last_s if self._flight or self.problem else 0.0

    def close(self) -> None:
        """Ends the thread; what is under way is given up."""
        self._stop.set()
        self._wake.set()
        closed = self._annotator
        if closed is not None:
            closed.close()  # a thread that waits for its answers is woken by this
        self._thread.join(CLOSING_S)
        if self._annotator is not None and self._annotator is not closed:
            self._annotator.close()

    # ---- the thread's

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
                if not self._stop.is_set():  # otherwise the annotator was closed while it worked
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
        """The next item of the newest plan that was not taken yet; None if there is none now."""
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
        """What is under way can be taken again."""
        lost = [item for items, _ in self._flight.values() for item in items]
        self._seen -= {item[:2] for item in lost}
        self.taken -= len(lost)
        self._flight, self._place = {}, 0

    def _finish(self, memory: AnswerMemory | None) -> None:
        """Closes what was opened, before it is opened again; at the end, the annotator is closed by `close`."""
        if self._annotator is not None and not self._stop.is_set():
            self._annotator.close()
            self._annotator = None
        if memory is not None:
            try:
                memory.close()
            except UserError as refused:  # by the file system
                self.problem = str(refused)


class Direct:
    """The same without a thread: `plan` asks, and returns when all is answered."""

    immediate = True
    problem, failures, strangers, under_way, silent_s = "", 0, 0, 0, 0.0

    def __init__(self, open_judge: Open, taken: int = 0):
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
            items_of = asked.pop(question, [])  # none, if nobody asked this
            self._back += [Answered(item, answer, time.monotonic() - begun, False) for item in items_of]
        self.taken += len(items)

    def answers(self) -> list[Answered]:
        """What was planned, in the order of its numbers."""
        found, self._back = sorted(self._back, key=lambda answered: answered.item[:2]), []
        return found

    def close(self) -> None:
        """Closes annotator and answer cache."""
        self._annotator.close()
        self._memory.close()
