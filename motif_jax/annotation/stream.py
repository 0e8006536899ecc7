"""Asks a judge in the background: a thread runs the loop `Asking` while the caller continues.

    caller       plan(items, limit)   the items to ask next, most urgent first; replaces the previous plan
                 answers()            the answers since the last call
    the thread   takes items from the plan, at most `limit` in all; asks; hands the answers back

The caller's methods never wait for the judge. An item is taken once: later plans skip items that are in flight, or
answered and not yet fetched.

If the annotator fails, the items in flight return to the plan, and the judge is opened again after a pause that
doubles. `silent_s` is the time since the last answer.

Without a thread (`immediate`), `plan` itself asks, and returns when everything is answered.
"""

from __future__ import annotations

import collections
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing.connection import Connection, Pipe
from typing import Any, NamedTuple

from motif_jax.annotation.annotator import (
    PAUSE,
    Answered,
    Asking,
    AskingCounts,
    Draws,
    Incomplete,
    Question,
    QuestionAnswer,
)
from motif_jax.annotation.backends import MODEL_FLAG, CaptionBackend, make_judge, opened
from motif_jax.structs import UserCodeError, UserError

FIRST_PAUSE_S, MAX_PAUSE_S = 1.0, 60.0  # before the judge is opened again
TICK_S = 0.05  # the thread waits this long for a plan before it checks for answers
CLOSING_S = 5.0


class Item(NamedTuple):
    """A question with the caller's number for it; asking it again is another attempt."""

    number: int
    attempt: int
    question: Question


class Stream:
    """Asks a judge, in a thread that runs from the constructor to `close`."""

    def __init__(
        self, judge: Callable[[AskingCounts], Asking], counts: AskingCounts, immediate: bool = False,
        at_once: bool = False, taken: int = 0,
    ):  # fmt: skip
        """Starts the thread; with `immediate`, there is none. `judge` may raise UserError or Incomplete.

        `at_once`: open the judge now, and raise its error; otherwise the thread opens it. `taken`: items taken in
        earlier runs, which count towards the limit.
        """
        self._open, self.counts, self.immediate = judge, counts, immediate
        self.taken = taken  # items ever taken
        self.problem = ""  # the reason why the judge cannot be asked now
        self.failures = 0  # of the judge
        self._planned: Sequence[Item] = ()  # the newest plan
        self._rest: Iterator[Item] = iter(())  # what may be left of it
        self._limit = 0  # of `taken`
        self._seen: set[Item] = set()  # items taken that the newest plan had, or that are in flight
        self._flight: dict[Question, list[Item]] = {}
        self._plan_lock = threading.Lock()  # of these five
        self._back: collections.deque[tuple[Item, Answered]] = collections.deque()
        self._last_s = time.monotonic()  # time of the last answer, or of the last moment with nothing in flight
        self._stop, self._wake = threading.Event(), threading.Event()
        self._error: Exception | None = None
        self._asking: Asking | None = judge(counts) if at_once or immediate else None
        self._thread = threading.Thread(target=self._run, name="judge", daemon=True)
        if not immediate:
            self._thread.start()

    # ---- called by the caller

    def plan(self, items: Sequence[Item], limit: int) -> None:
        """Replaces the plan; `limit` is that of all runs together. Raises Incomplete if an immediate judge fails."""
        with self._plan_lock:
            self._planned, self._rest, self._limit = items, iter(items), limit
            self._seen &= {*items}.union(*self._flight.values())
        self._wake.set()
        if self.immediate:
            assert self._asking is not None
            self._asking.ask(self._questions(), self._take)
            self._seen.clear()

    def answers(self) -> list[tuple[Item, Answered]]:
        """The answers since the last call, or the thread's error; of an immediate judge in the order of the items."""
        if self._error is not None:
            raise self._error
        answers = [self._back.popleft() for _ in range(len(self._back))]
        return sorted(answers, key=lambda one: one[0][:2]) if self.immediate else answers

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
        closed = self._asking
        if closed is not None:
            closed.annotator.close()  # wakes a thread that waits for answers
        if not self.immediate:
            self._thread.join(CLOSING_S)
        if self._asking is not None:
            if self._asking is not closed:
                self._asking.annotator.close()
            self._close_cache(self._asking)

    # ---- run by the thread

    def _run(self) -> None:
        pause_s = FIRST_PAUSE_S
        while not self._stop.is_set():
            before = self.counts.asked
            try:
                self._asking = self._asking or self._open(self.counts)
                self.problem = ""
                self._asking.ask(self._questions(), self._take)
            except Exception as failed:
                # The error of a user's judge would come again.
                if not isinstance(failed, UserError | Incomplete) or isinstance(failed, UserCodeError):
                    if not self._stop.is_set():  # an annotator that is closed while it works may raise anything
                        self._error = failed
                    return
                self.problem = str(failed)
            finally:
                self._put_back()
                if self._asking is not None and not self._stop.is_set():  # otherwise `close` does this
                    self._asking.annotator.close()
                    self._close_cache(self._asking)
                    self._asking = None
            self.failures += not self._stop.is_set()
            pause_s = FIRST_PAUSE_S if self.counts.asked > before else min(2 * pause_s, MAX_PAUSE_S)
            self._stop.wait(pause_s)

    def _take(self, answered: Answered) -> None:
        if not answered.cached:
            self._last_s, self.problem = time.monotonic(), ""
        with self._plan_lock:
            items = self._flight.pop(answered.question)
        self._back.extend((item, answered) for item in items)

    def _questions(self) -> Iterator[Question | None]:
        """The questions of the newest plan; pauses when it is used up, or ends there if it is immediate."""
        while not self._stop.is_set():
            if (item := self._next()) is not None:
                yield item.question
            elif self.immediate:
                return
            else:
                if not self._flight and not self.problem:
                    self._last_s = time.monotonic()
                self._wake.wait(TICK_S)
                self._wake.clear()
                yield PAUSE

    def _next(self) -> Item | None:
        """Takes the next item of the newest plan; None if every item is taken or the limit is reached."""
        with self._plan_lock:
            if self.taken >= self._limit:
                return None
            item = next((item for item in self._rest if item not in self._seen), None)
            if item is not None:
                self._seen.add(item)
                self._flight.setdefault(item.question, []).append(item)
                self.taken += 1
            return item

    def _put_back(self) -> None:
        with self._plan_lock:
            lost = [item for items in self._flight.values() for item in items]
            self._seen.difference_update(lost)
            self._rest, self._flight = iter(self._planned), {}
        self.taken -= len(lost)

    def _close_cache(self, asking: Asking) -> None:
        if asking.cache:
            try:
                asking.cache.close()
            except UserError as error:  # such as a full disk
                self.problem = str(error)


# Runs a judge that uses JAX in a process of its own, apart from the learner's threads and memory.
#
#     OwnProcess.answers ──── lists of up to TOGETHER questions ────> main, in the other process
#                        <─── the answers to a list, or a UserError ───
#
# The first message describes the backend, and its reply is the name of the opened model. The process has a lower
# priority than the games, takes an accelerator's memory as it needs it, and ends when its parent ends.
#
#     python -m motif_jax.annotation.stream DESCRIPTOR     the number of an inherited, connected socket

TOGETHER = 64  # questions in a list: a few seconds of a small model on a CPU
LISTS = 2  # without answers: the process computes one while the next one waits


class OwnProcess:
    """An annotator whose backend is opened in another process."""

    def __init__(self, backend: CaptionBackend):
        """Starts the process; raises UserError if it cannot open the backend."""
        self._pipe, end = Pipe()
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "motif_jax.annotation.stream", str(end.fileno())],
            stdin=subprocess.DEVNULL,
            pass_fds=(end.fileno(),),
            env=os.environ | {"PYTHONPATH": path, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
            process_group=0,  # Ctrl-C reaches only the parent, which then ends this process
        )
        end.close()
        try:
            self._send((backend.section, backend.texts, backend.seed, backend.one, backend.verdicts))
            self.model: str = self._receive()
        except Incomplete as ended:
            raise UserError(str(ended)) from None
        except BaseException:
            self.close()
            raise

    def answers(self, questions: Iterable[Question | None]) -> Iterator[tuple[Question, QuestionAnswer]]:
        """Draws questions while there is room for them, and yields answers as they arrive. A pause never waits."""
        draws, drawn, sent = Draws(questions), list[Question](), 0  # `sent`: the number of lists without answers
        while sent or draws.more:
            if len(drawn) < TOGETHER and draws.more and (question := draws.next()):
                drawn.append(question)
                continue
            if drawn and sent < LISTS:
                self._send(drawn)
                drawn, sent = [], sent + 1
            if sent and (not draws.more or len(drawn) == TOGETHER or self._pipe.poll()):
                sent -= 1
                yield from self._receive()

    def close(self) -> None:
        """Ends the process, also from another thread while it works: `answers` then raises Incomplete."""
        self._process.kill()
        self._process.wait()

    def _send(self, message: Any) -> None:
        try:
            self._pipe.send(message)
        except OSError:
            raise self._ended() from None

    def _receive(self) -> Any:
        try:
            reply = self._pipe.recv()
        except (EOFError, OSError):
            raise self._ended() from None
        if isinstance(reply, UserError):
            raise reply
        return reply

    def _ended(self) -> Incomplete:
        status = self._process.wait()
        how = f"status {status}; its own output says why"
        if status < 0:
            how = f"signal {-status}" + (", which systems send when memory runs out" if status == -9 else "")
        return Incomplete(f"the judge's process ended with {how} ({MODEL_FLAG})")


def main() -> None:
    """Answers questions until the other end of the pipe is closed."""
    os.nice(5)  # before JAX starts its threads
    for number in (signal.SIGINT, signal.SIGTERM):  # for the parent, which then ends this process
        signal.signal(number, signal.SIG_IGN)
    pipe, received = Connection(int(sys.argv[1])), queue.SimpleQueue[Any]()
    threading.Thread(target=read, args=(pipe, received), daemon=True).start()
    try:
        annotator = opened(make_judge(*received.get()))
        pipe.send(annotator.model)
        while True:
            pipe.send(list(annotator.answers(received.get())))
    except UserCodeError as error:
        pipe.send(error)
    except UserError as error:
        pipe.send(UserError(str(error)))  # other classes may not come back from a pickle


def read(pipe: Connection, received: queue.SimpleQueue[Any]) -> None:
    """Receives messages also while the model computes, and ends the process at the end of its parent."""
    try:
        while True:
            received.put(pipe.recv())
    except (EOFError, OSError):
        os._exit(0)


if __name__ == "__main__":
    main()
