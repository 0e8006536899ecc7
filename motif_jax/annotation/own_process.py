"""Runs a judge that uses JAX in a process of its own, apart from the learner's threads and memory.

    OwnProcess.answers ──── questions, up to TOGETHER in a message ────> main, in the other process
                       <─── their answers ──────────────────────────────

The first message describes the backend, and its reply is the name of the opened model. The process has a lower priority
than the games, takes an accelerator's memory as it needs it, and ends when its parent ends.

    python -m motif_jax.annotation.own_process DESCRIPTOR     the number of an inherited, connected socket
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from multiprocessing.connection import Connection, Pipe
from typing import Any

from motif_jax.annotation.annotator import Incomplete, Question, QuestionAnswer
from motif_jax.annotation.backends import MODEL_FLAG, CaptionBackend, find_backend
from motif_jax.structs import UserError

TOGETHER = 64  # questions in a message: a few seconds of a small model on a CPU
IN_FLIGHT = 4 * TOGETHER  # most questions without an answer
NICE = 5
END, NOT_DRAWN = "end", "not drawn"  # instead of a question: the stream is used up; enough are in flight


class OwnProcess:
    """An annotator whose backend is opened in another process."""

    def __init__(self, backend: CaptionBackend):
        """Starts the process; raises UserError if it cannot open the backend."""
        self._flight = 0  # questions without an answer
        self._pipe, end = Pipe()
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "motif_jax.annotation.own_process", str(end.fileno())],
            stdin=subprocess.DEVNULL,
            pass_fds=(end.fileno(),),
            env=os.environ | {"PYTHONPATH": path, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
            process_group=0,  # Ctrl-C reaches only the parent, which then ends this process
        )
        end.close()
        try:
            self._send((backend.section, backend.texts, backend.seed, backend.one, backend.verdicts))
            self.model: str = self._receive("model")
        except Incomplete as ended:
            raise UserError(str(ended)) from None
        except BaseException:
            self.close()
            raise

    def answers(self, questions: Iterable[Question | None]) -> Iterator[tuple[Question, QuestionAnswer]]:
        """Yields answers as they arrive, and draws a question while fewer than IN_FLIGHT lack one.

        At a pause it sends the questions that it has, and continues with the next without waiting.
        """
        stream, drawn = iter(questions), list[Question]()
        ended = False
        while not ended or self._flight:
            is_full = self._flight >= IN_FLIGHT
            question = NOT_DRAWN if ended or is_full else next(stream, END)
            if isinstance(question, Question):
                drawn.append(question)
                self._flight += 1
                if len(drawn) < TOGETHER:
                    continue
            ended = ended or question is END
            if drawn:
                self._send(drawn)
                drawn = []
            wait = self._flight > 0 and (ended or is_full)
            while wait or self._pipe.poll():
                wait = False
                for answered in self._receive("answers"):
                    self._flight -= 1
                    yield answered

    def close(self) -> None:
        """Ends the process, also from another thread while it works: `answers` then raises Incomplete."""
        self._process.kill()
        self._process.wait()

    def _send(self, message: Any) -> None:
        try:
            self._pipe.send(message)
        except OSError:
            raise self._ended() from None

    def _receive(self, name: str) -> Any:
        try:
            reply = self._pipe.recv()
        except (EOFError, OSError):
            raise self._ended() from None
        if "error" in reply:
            raise UserError(reply["error"])
        return reply[name]

    def _ended(self) -> Incomplete:
        status = self._process.wait()
        how = f"status {status}; its own output says why"
        if status < 0:
            how = f"signal {-status}" + (", which systems send when memory runs out" if status == -9 else "")
        return Incomplete(f"the judge's process ended with {how} ({MODEL_FLAG})")


def main() -> None:
    """Answers questions until the other end of the pipe is closed."""
    os.nice(NICE)  # before JAX starts its threads
    for number in (signal.SIGINT, signal.SIGTERM):  # for the parent, which then ends this process
        signal.signal(number, signal.SIG_IGN)
    pipe = Connection(int(sys.argv[1]))
    asked: queue.SimpleQueue[list[Question]] = queue.SimpleQueue()
    section, *more = pipe.recv()
    threading.Thread(target=read, args=(pipe, asked), daemon=True).start()
    try:
        backend = find_backend(section)(section, *more)
        assert isinstance(backend, CaptionBackend)
        annotator = backend.open()
        reply: dict[str, Any] = {"model": annotator.model}
        while True:
            pipe.send(reply)
            reply = {"answers": list(annotator.answers(waiting(asked)))}
    except UserError as error:
        pipe.send({"error": str(error)})


def read(pipe: Connection, asked: queue.SimpleQueue[list[Question]]) -> None:
    """Reads questions also while the model computes, so that the parent never waits; ends the process at the end."""
    try:
        while True:
            asked.put(pipe.recv())
    except (EOFError, OSError):
        os._exit(0)


def waiting(asked: queue.SimpleQueue[list[Question]]) -> list[Question]:
    """Waits for questions, and returns about TOGETHER of those that have come."""
    questions = asked.get()
    while len(questions) < TOGETHER and not asked.empty():
        questions += asked.get()
    return questions


if __name__ == "__main__":
    main()
