"""A judge that needs no download and no GPU: the lexicon, behind an OpenAI-compatible server in a process of its own.

    with Judge({"defaultgoal": prompt}, texts) as judge:
        Server(judge.url, judge.model, prompt, sampling)...

It is asked as any language model is, over HTTP on loopback, and takes `delay_s` for a question, `at_a_time` of them at
once; further ones wait. `judge_server.py` is the process. It ends with this one, however this one ends. If it ends
before, it is started again at the same address; it is given up, with a line that says so, after GIVE_UP_AFTER processes
in a row that did not last STEADY_S.
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
from typing import Any

from motif_jax.annotation import judge_server
from motif_jax.annotation.annotator import Sampling
from motif_jax.annotation.lexicon import Lexicon
from motif_jax.annotation.prompts import Prompt
from motif_jax.annotation.server import Server
from motif_jax.annotation.texts import Texts
from motif_jax.console import print_line
from motif_jax.structs import UserError

START_S = 600.0  # for imports, on a busy machine; a process that ends meanwhile is noticed at once
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
            [sys.executable, "-m", judge_server.__name__],
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
            raise UserError(
                f"the judge did not start: its process ended with status {process.wait()}; what it wrote itself says "
                "why (--config.annotate.backend)"
            )
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
            with contextlib.suppress(UserError):  # counted, when it is waited for
                self._process, _ = self._open(self.port)
            started = time.monotonic()
            if self._closing.is_set():  # meanwhile
                self.close()


class JudgeClient(Server):
    """An annotator that asks a judge, and ends it when it is closed."""

    def __init__(self, judge: Judge, prompt: Prompt, sampling: Sampling | None, **options: Any):
        """Arguments as for `Server`."""
        self._judge = judge
        super().__init__(judge.url, judge.model, prompt, sampling, **options)

    def close(self) -> None:
        """Closes the connections, then the judge."""
        try:
            super().close()
        finally:
            self._judge.close()
