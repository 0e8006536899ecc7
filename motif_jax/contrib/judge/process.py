"""The embedded judge, which needs neither download nor GPU: the lexicon behind an OpenAI-compatible server process.

    with Judge("defaultgoal", prompt, texts) as judge:
        ChatClient(ServerSection(url=judge.url), judge.model, prompt, sampling)...

Clients ask it like any language model, over HTTP on loopback. A question takes `delay_s`, and at most `at_a_time`
questions are answered concurrently. The process (`server.py`) always ends with its parent.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
from dataclasses import asdict, replace
from typing import IO, cast

from motif_jax.annotation.client import ChatClient
from motif_jax.annotation.lexicon import Lexicon
from motif_jax.annotation.prompts import QuestionTemplate
from motif_jax.annotation.section import SamplingSection, ServerSection
from motif_jax.contrib.judge import server
from motif_jax.envs.texts import Texts
from motif_jax.structs import UserError

START_S = 600.0  # for imports on a busy machine; the end of the process is noticed at once
CLOSING_S = 5.0


class Judge:
    """The server process; a context manager."""

    def __init__(self, goal: str, prompt: QuestionTemplate, texts: Texts, *, delay_s: float = 0.05, at_a_time: int = 8):
        """Starts the process; raises UserError if the texts lack rules or the goal. `delay_s`: seconds per question."""
        Lexicon(texts, goal)
        self.model = f"lexicon-{texts.rules().version}"  # other rules count as another model
        start = {
            "parent": os.getpid(),
            "model": self.model,
            "goal": goal,
            "prompt": asdict(prompt),
            "texts": {**texts._asdict(), "folder": str(texts.folder) if texts.folder else None},
            "delay_s": delay_s,
            "at_a_time": at_a_time,
        }
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        self.process = subprocess.Popen(
            [sys.executable, "-m", server.__name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": path},
            process_group=0,  # Ctrl-C reaches only this process, which then ends the judge
        )
        self._input, output = cast(IO[bytes], self.process.stdin), cast(IO[bytes], self.process.stdout)
        with contextlib.suppress(BrokenPipeError):  # it died at once, as the missing output below shows
            self._input.write(json.dumps(start).encode() + b"\n")
            self._input.flush()
        with output:
            readable, _, _ = select.select([output], [], [], START_S)
            line = output.readline() if readable else b""
        if not line.endswith(b"\n"):
            self.process.kill()
            raise UserError(
                f"the judge did not start: its process ended with status {self.process.wait()}, see its output "
                "(--config.annotate.backend)"
            )
        self._port = int(line)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/v1"

    def __enter__(self) -> Judge:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._input.close()
        try:
            self.process.wait(CLOSING_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


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
