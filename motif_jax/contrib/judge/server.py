"""The process of the embedded judge (`process.py`), which answers questions by the rules of the lexicon.

Its first line of input is a JSON object (`Judge._start`); its first line of output is its port. It does not load JAX,
and ends when its parent or its standard input ends.

Each prompt belongs to a goal; the goal's rules decide, in the words that the prompt asks for. Ambiguous captions get an
answer without a verdict.
"""

from __future__ import annotations

import json
import os
import select
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from motif_jax.annotation.annotator import Question
from motif_jax.annotation.lexicon import Lexicon
from motif_jax.annotation.prompts import QuestionTemplate
from motif_jax.console import print_line
from motif_jax.contrib.judge.chat import PLACE, ChatHandler, LoopbackServer, completion, read_question, user_text
from motif_jax.envs.texts import Texts

LOOK_EVERY_S = 0.5  # between checks that the parent exists


class JudgeServer(LoopbackServer):
    """Answers questions by the rules."""

    def __init__(self, start: Mapping[str, Any]):
        super().__init__(start["port"], JudgeHandler)
        texts = Texts(**start["texts"])
        texts = texts._replace(folder=Path(texts.folder) if texts.folder else None)
        self.model = start["model"]
        prompts = {goal: QuestionTemplate(**fields) for goal, fields in start["prompts"].items()}
        self._asked = [(before_captions(prompt), prompt, Lexicon(texts, goal)) for goal, prompt in prompts.items()]
        self._delay_s = start["delay_s"]
        self._free = threading.BoundedSemaphore(start["at_a_time"])

    def complete(self, body: dict[str, Any]) -> dict[str, Any]:
        """Answers a request after the delay; raises ValueError if none of the prompts fits."""
        text = user_text(body)
        with self._free:
            time.sleep(self._delay_s)
            for intro, prompt, lexicon in self._asked:
                if text.startswith(intro):
                    question = read_question(text[len(intro) :], prompt.captions)
                    return answer(prompt, lexicon, question, body)
        raise ValueError("this is not one of the questions that the judge was started for")


class JudgeHandler(ChatHandler):
    """The two requests that `ChatClient` makes."""

    server: JudgeServer

    def do_GET(self) -> None:
        if self.path == "/v1/models":
            self.list_models([self.server.model])
        else:
            self.reply(404, {"error": "there is nothing here"})

    def do_POST(self) -> None:
        try:
            body = self.read_body()
            if self.path != "/v1/chat/completions" or body.get("model") != self.server.model:
                self.reply(404, {"error": f"there is only the model {self.server.model}, at /v1/chat/completions"})
            else:
                self.reply(200, self.server.complete(body))
        except ValueError as error:
            self.reply(400, {"error": str(error)})


def before_captions(prompt: QuestionTemplate) -> str:
    """The part of a prompt's user message before the captions."""
    empty = prompt.messages(Question("") if prompt.one else Question("", ""))[-1]["content"]
    return empty.removesuffix(PLACE.sub("", prompt.captions))


def answer(
    prompt: QuestionTemplate, lexicon: Lexicon, question: Question | None, body: dict[str, Any]
) -> dict[str, Any]:
    """The reply to a question, in the words of its prompt; None: an ambiguous question."""
    if question is None:
        return completion("It is not clear where a caption begins and ends.", body, [("It", 1.0)])
    found = lexicon.answer(question)
    number = ((1.0, 0.0) if prompt.one else (0.0, 1.0, 0.5)).index(found.yes or 0.0)
    digit = "10"[number] if prompt.one else "120"[number]
    # The verdict stands where `parsing` looks first: the names of rules could look like verdicts.
    parts = (found.said, prompt.verdicts[number])
    return completion("\n".join(parts if prompt.one else parts[::-1]), body, [(digit, 1.0)])


def main() -> None:
    """Serves until the parent ends."""
    start = json.loads(sys.stdin.buffer.readline())
    server = JudgeServer(start)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print_line(server.port)
    while os.getppid() == start["parent"]:  # the input alone is not enough: another process may hold its other end
        if select.select([sys.stdin], [], [], LOOK_EVERY_S)[0] and not os.read(0, 1):
            break
    os._exit(0)  # without waiting for open requests


if __name__ == "__main__":
    main()
