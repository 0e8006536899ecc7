"""The embedded judge, which needs neither download nor GPU: the lexicon behind an OpenAI-compatible server process.

    with Judge("defaultgoal", prompt, texts) as judge:
        ChatClient(ServerSection(url=judge.url), judge.model, prompt, sampling)...

Clients ask it like any language model, over HTTP on loopback. A question takes `delay_s`, and at most `at_a_time`
questions are answered concurrently. The process (`server.py`) always ends with its parent. If it dies earlier, it
is restarted at the same address, until GIVE_UP_AFTER processes in a row have lasted less than STEADY_S.
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
from dataclasses import asdict, replace

from motif_jax.annotation.client import ChatClient
from motif_jax.annotation.lexicon import Lexicon
from motif_jax.annotation.prompts import QuestionTemplate
from motif_jax.annotation.section import SamplingSection, ServerSection
from motif_jax.console import print_line
from motif_jax.contrib.judge import server
from motif_jax.envs.texts import Texts
from motif_jax.structs import UserError

START_S = 600.0  # for imports on a busy machine; the end of the process is noticed at once
STEADY_S = 30.0
GIVE_UP_AFTER = 5
CLOSING_S = 5.0


class Judge:
    """The server process; a context manager."""

    def __init__(self, goal: str, prompt: QuestionTemplate, texts: Texts, *, delay_s: float = 0.05, at_a_time: int = 8):
        """Starts the process; raises UserError if the texts lack rules or the goal. `delay_s`: seconds per question."""
        Lexicon(texts, goal)
        self.model = f"lexicon-{texts.rules().version}"  # other rules count as another model
        folder = str(texts.folder) if texts.folder else None
        self._start = {
            "parent": os.getpid(),
            "model": self.model,
            "goal": goal,
            "prompt": asdict(prompt),
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
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def process(self) -> int:
        return self._process.pid

    def __enter__(self) -> Judge:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
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
        """Starts a process that listens on `port` (0: a free one); returns it with the port."""
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        process = subprocess.Popen(
            [sys.executable, "-m", server.__name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": path},
            process_group=0,  # Ctrl-C reaches only this process, which then ends the judge
        )
        assert process.stdin is not None
        assert process.stdout is not None
        self.starts += 1
        with contextlib.suppress(BrokenPipeError):  # it died at once, as the missing output below shows
            process.stdin.write(json.dumps(self._start | {"port": port}).encode() + b"\n")
            process.stdin.flush()
        readable, _, _ = select.select([process.stdout], [], [], START_S)
        line = process.stdout.readline() if readable else b""
        process.stdout.close()
        if not line.endswith(b"\n"):
            process.kill()
            raise UserError(
                f"the judge did not start: its process ended with status {process.wait()}, see its output "
                "(--config.annotate.backend)"
            )
        return process, int(line)

    def _watch(self) -> None:
        """Restarts the process whenever it ends by itself."""
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
            with contextlib.suppress(UserError):  # the next round counts this failure
                self._process, _ = self._open(self.port)
            started = time.monotonic()
            if self._closing.is_set():  # `close` ended the previous process
                self.close()


class JudgeClient(ChatClient):
    """An annotator that asks a judge, and closes it at the end."""

    def __init__(self, judge: Judge, server: ServerSection, prompt: QuestionTemplate, sampling: SamplingSection | None):
        self._judge = judge
        super().__init__(replace(server, url=judge.url), judge.model, prompt, sampling)

    def close(self) -> None:
        """Closes the connections, then the judge."""
        try:
            super().close()
        finally:
            self._judge.close()
