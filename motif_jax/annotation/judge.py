"""A judge that needs no download and no GPU: the lexicon, behind an OpenAI-compatible server in a process of its own.

    with Judge({"defaultgoal": prompt}, texts) as judge:
        Server(judge.url, judge.model, prompt, sampling)...

It is asked as any language model is, over HTTP on loopback, and takes `delay_s` for a question, `at_a_time` of them at
once; further ones wait. It answers in the words that the prompt asks for, by the rules of the goal whose prompt it is.
What cannot be read without doubt gets an answer without a verdict.

The process loads no JAX. It ends with this one, however this one ends: it watches its standard input, whose other end
only this process holds. If it ends before, it is started again at the same address; after GIVE_UP_AFTER ends in a row,
none of which lasted STEADY_S, it is given up with a line that says so.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from motif_jax.annotation.annotator import Question
from motif_jax.annotation.chat import PLACE, ChatHandler, LoopbackServer, completion, read_question, user_text
from motif_jax.annotation.lexicon import Lexicon
from motif_jax.annotation.prompts import Prompt
from motif_jax.annotation.texts import Texts
from motif_jax.console import print_line

START_S = 60.0  # for imports, on a busy machine
STEADY_S = 30.0
GIVE_UP_AFTER = 5
CLOSING_S = 5.0


class Judge:
    """The process, between `with` or `close`."""

    def __init__(self, prompts: Mapping[str, Prompt], texts: Texts, *, delay_s: float = 0.05, at_a_time: int = 8):
        """Starts the process.

        Args:
          prompts: what it will be asked, by goal.
          texts: what is said of the game; raises UserError if that has no rules, or not one of the goals.
          delay_s: seconds that each question takes.
          at_a_time: questions that are answered side by side.
        """
        for goal in prompts:
            Lexicon(texts, goal)
        self.model = f"lexicon-{texts.rules().version}"  # answers by other rules are another model's
        folder = str(texts.folder) if texts.folder else None
        self._start = {
            "parent": os.getpid(),
            "model": self.model,
            "prompts": {goal: asdict(prompt) for goal, prompt in prompts.items()},
            "texts": {**texts._asdict(), "folder": folder},
            "delay_s": delay_s,
            "at_a_time": at_a_time,
        }
        self.starts = 0
        self._closing = threading.Event()
        self._process, self.port = self._open(0)
        threading.Thread(target=self._watch, name="judge", daemon=True).start()

    @property
    def url(self) -> str:
        """Its address, for `Server`."""
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def process(self) -> int:
        """The number of the process that answers now."""
        return self._process.pid

    def __enter__(self) -> Judge:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the process."""
        self._closing.set()
        process = self._process
        if process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
        try:
            process.wait(CLOSING_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _open(self, port: int) -> tuple[subprocess.Popen[bytes], int]:
        """Starts a process that listens on `port`, or on a free one if that is 0; returns it with the port."""
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        process = subprocess.Popen(
            [sys.executable, "-m", "motif_jax.annotation.judge"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": path},
            process_group=0,  # a Ctrl-C is meant for this process, which then ends that one
        )
        assert process.stdin is not None
        assert process.stdout is not None
        self.starts += 1
        with contextlib.suppress(BrokenPipeError):  # it died at once, and says nothing
            process.stdin.write(json.dumps(self._start | {"port": port}).encode() + b"\n")
            process.stdin.flush()
        readable, _, _ = select.select([process.stdout], [], [], START_S)
        said = process.stdout.readline() if readable else b""
        process.stdout.close()
        if not said.endswith(b"\n"):
            process.kill()
            raise ChildProcessError(f"the judge did not start: its process ended with status {process.wait()}")
        return process, int(said)

    def _watch(self) -> None:
        """Starts the process again whenever it ends by itself."""
        failures, started = 0, time.monotonic()
        while True:
            status = self._process.wait()
            if self._closing.is_set():
                return
            failures = failures + 1 if time.monotonic() - started < STEADY_S else 1
            if failures >= GIVE_UP_AFTER:
                print_line(
                    f"judge: ended {failures} times in a row, last with status {status}; it is not started again"
                )
                return
            print_line(f"judge: its process ended with status {status}, started again")
            with contextlib.suppress(ChildProcessError):  # counted, when it is waited for
                self._process, _ = self._open(self.port)
            started = time.monotonic()
            if self._closing.is_set():  # meanwhile
                self.close()


# ---- in the process


class JudgeServer(LoopbackServer):
    """Answers by the rules."""

    def __init__(self, start: Mapping[str, Any]):
        """`start`: what `Judge` sends."""
        super().__init__(start["port"], JudgeHandler)
        texts = Texts(**start["texts"])
        texts = texts._replace(folder=Path(texts.folder) if texts.folder else None)
        self.model = start["model"]
        prompts = {goal: Prompt(**fields) for goal, fields in start["prompts"].items()}
        self._asked = [(before_captions(prompt), prompt, Lexicon(texts, goal)) for goal, prompt in prompts.items()]
        self._delay_s = start["delay_s"]
        self._free = threading.BoundedSemaphore(start["at_a_time"])

    def complete(self, body: dict[str, Any]) -> dict[str, Any]:
        """Answers a request, after its delay; raises ValueError for one that it was not started for."""
        text = user_text(body)
        with self._free:
            time.sleep(self._delay_s)
            for intro, prompt, lexicon in self._asked:
                if text.startswith(intro):
                    question = read_question(text[len(intro) :], prompt.captions)
                    return answer(prompt, lexicon, question, body)
        raise ValueError("this is not one of the questions that the judge was started for")


class JudgeHandler(ChatHandler):
    """The two requests that `Server` makes."""

    server: JudgeServer

    def do_GET(self) -> None:
        """Lists the model."""
        if self.path == "/v1/models":
            self.list_models([self.server.model])
        else:
            self.reply(404, {"error": "there is nothing here"})

    def do_POST(self) -> None:
        """Answers a question."""
        try:
            body = self.read_body()
            if self.path != "/v1/chat/completions" or body.get("model") != self.server.model:
                self.reply(404, {"error": f"there is only the model {self.server.model}, at /v1/chat/completions"})
            else:
                self.reply(200, self.server.complete(body))
        except ValueError as error:
            self.reply(400, {"error": str(error)})


def before_captions(prompt: Prompt) -> str:
    """What a prompt's user says before the captions."""
    empty = prompt.messages(Question("") if prompt.one else Question("", ""))[-1]["content"]
    return empty.removesuffix(PLACE.sub("", prompt.captions))


def answer(prompt: Prompt, lexicon: Lexicon, question: Question | None, body: dict[str, Any]) -> dict[str, Any]:
    """The reply to a question, in the words that its prompt asks for; None: a question that cannot be read."""
    if question is None:
        return completion("It is not clear where a caption begins and ends.", body, [("It", 1.0)])
    found = lexicon.answer(question)
    number = ((1.0, 0.0) if prompt.one else (0.0, 1.0, 0.5)).index(found.yes or 0.0)
    digit = "10"[number] if prompt.one else "120"[number]
    # The first verdict on two captions counts and the last on one, whatever the names of rules say.
    parts = (found.said, prompt.verdicts[number])
    return completion("\n".join(parts if prompt.one else parts[::-1]), body, [(digit, 1.0)])


def main() -> None:
    """Serves until the parent ends; what is to be done comes in the first line of the standard input."""
    start = json.loads(sys.stdin.buffer.readline())
    server = JudgeServer(start)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print_line(server.port)
    while os.getppid() == start["parent"]:  # another process may hold the other end by accident
        if select.select([sys.stdin], [], [], 1.0)[0] and not os.read(0, 1):
            break
    os._exit(0)  # without waiting for those who ask


if __name__ == "__main__":
    main()
