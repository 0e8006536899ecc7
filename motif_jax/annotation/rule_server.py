"""The backend `judge`, which needs neither download nor GPU: the lexicon behind an OpenAI-compatible server.

    JudgeClient(Judge("defaultgoal", prompt, texts), ServerSection(), prompt, sampling)...

It is asked like any language model, over HTTP on loopback; threads of this process answer. A question takes `delay_s`,
and at most `at_a_time` questions are answered concurrently.

The goal's rules decide, in the words that the prompt asks for. Captions are untrusted text: one may look like the end
of a caption and the start of the next. So the judge does not read them from a request, which only says what question
of its client it shows; a text that shows two questions gets an answer without a verdict from the second one on.

The handler of chat completions also serves the tests.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from motif_jax.annotation.annotator import Annotator, Question, QuestionAnswer
from motif_jax.annotation.backends import Lexicon, Prompted, Server, read_json
from motif_jax.annotation.client import ChatClient
from motif_jax.annotation.prompts import OPENING, OWN_WORDS, QuestionTemplate
from motif_jax.annotation.section import SamplingSection, ServerSection
from motif_jax.envs.texts import Texts
from motif_jax.structs import UserError

Tops = Sequence[tuple[str, float]]  # candidate tokens at a position, and their probabilities
LONGEST_BODY = 2**22  # bytes


class LoopbackServer(ThreadingHTTPServer):
    """A server that listens on loopback only, with a thread for each connection."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, port: int, handler: type[ChatHandler]):
        super().__init__(("127.0.0.1", port), handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def handle_error(self, *_: object) -> None:
        """Does not report broken connections."""


class ChatHandler(BaseHTTPRequestHandler):
    """Answers one connection's requests; a subclass has `do_GET` and `do_POST`."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: LoopbackServer

    def log_message(self, *_: object) -> None:
        """Does not log requests."""

    def read_body(self) -> Any:
        """Reads the request; raises ValueError if it is not JSON."""
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdecimal() and len(length) < 9 and int(length) <= LONGEST_BODY):
            self.close_connection = True  # else the unread body would be parsed as the next request
            raise ValueError(f"a request must say its length, of up to {LONGEST_BODY:,} bytes")
        return json.loads(self.rfile.read(int(length)))

    def reply(self, status: int, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def user_text(body: dict[str, Any]) -> str:
    """The user's first message in a conversation."""
    return next(message["content"] for message in body["messages"] if message["role"] == "user")


def completion(content: str, body: dict[str, Any], verdict: Tops) -> dict[str, Any]:
    """A chat completion.

    If the request `body` asks for log-probabilities, the reply has `verdict`: the candidates for a verdict token at the
    start, most likely first.
    """
    message = {"role": "assistant", "content": content}
    choice: dict[str, Any] = {"index": 0, "finish_reason": "stop", "message": message}
    if body.get("logprobs"):
        places: list[Tops] = [verdict] if body.get("continue_final_message") else [[(OPENING, 1.0)], verdict]
        choice["logprobs"] = {"content": [_place(tops) for tops in places]}
    return {"object": "chat.completion", "choices": [choice]}


def _place(tops: Tops) -> dict[str, Any]:
    listed = [{"token": token, "logprob": math.log(probability)} for token, probability in tops]
    return {**listed[0], "top_logprobs": listed}


class Judge(LoopbackServer):
    """Answers questions by the rules; a context manager."""

    def __init__(self, goal: str, prompt: QuestionTemplate, texts: Texts, *, delay_s: float = 0.05, at_a_time: int = 8):
        """Starts to serve; raises UserError if the texts lack rules or the goal. `delay_s`: seconds per question."""
        self._prompt, self._lexicon, self._delay_s = prompt, Lexicon(texts, goal), delay_s
        self._expected: dict[int, Question | None] = {}  # by the hash of its text; None: of two questions
        self.model = f"lexicon-{texts.rules().version}"  # other rules count as another model
        self._free = threading.BoundedSemaphore(at_a_time)
        super().__init__(0, JudgeHandler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def expect(self, question: Question) -> None:
        """Tells which question a request will show."""
        text = hash(self._prompt.messages(question)[-1]["content"])
        if self._expected.setdefault(text, question) != question:
            self._expected[text] = None

    def complete(self, body: dict[str, Any]) -> dict[str, Any]:
        """The reply to a question, in the words of its prompt."""
        prompt, question = self._prompt, self._expected[hash(user_text(body))]
        with self._free:
            time.sleep(self._delay_s)
            if question is None:
                return completion("It is not clear where a caption begins and ends.", body, [("It", 1.0)])
            verdict = self._lexicon.answer(question)
        number = ((1.0, 0.0) if prompt.one else (0.0, 1.0, 0.5)).index(verdict.yes or 0.0)
        digit = "10"[number] if prompt.one else "120"[number]
        # The verdict stands where `parsing` looks first: the names of rules could look like verdicts.
        parts = (verdict.said, prompt.verdicts[number])
        return completion("\n".join(parts if prompt.one else parts[::-1]), body, [(digit, 1.0)])

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.shutdown()
        self.server_close()


class JudgeClient(ChatClient):
    """An annotator that asks a judge, and closes it at the end."""

    def __init__(self, judge: Judge, server: ServerSection, prompt: QuestionTemplate, sampling: SamplingSection | None):
        self._judge = judge
        super().__init__(replace(server, url=judge.url), judge.model, prompt, sampling)

    async def _answer(self, question: Question) -> tuple[Question, QuestionAnswer]:
        self._judge.expect(question)
        return await super()._answer(question)

    def close(self) -> None:
        try:
            super().close()
        finally:
            self._judge.close()


class JudgeHandler(ChatHandler):
    """The two requests that `ChatClient` makes."""

    server: Judge

    def do_GET(self) -> None:
        self.reply(200, {"object": "list", "data": [{"id": self.server.model, "object": "model"}]})

    def do_POST(self) -> None:
        try:
            self.reply(200, self.server.complete(self.read_body()))
        except (ValueError, KeyError, TypeError, AttributeError, StopIteration, RecursionError) as error:
            self.reply(400, {"error": f"{type(error).__name__}: {error}"})


class RuleServer(Server):
    """`judge`: answers by the rules of the game's texts, behind the interface of a server."""

    by_rules = True

    def metadata(self) -> dict[str, Any]:
        return super().metadata() | {"rules": self.texts.rules().version}

    def check(self) -> None:
        Prompted.check(self)  # not Server's, of an address and a key: this judge starts its own server
        Lexicon(self.texts, self.section.goal)
        words = OWN_WORDS[self.template.one]
        if len(self.template.verdicts) < len(words):
            plain = f"the judge can only write answers that are plain words, one for each of {', '.join(words)}"
            raise UserError(f"{plain} (answers in --config.annotate.prompt_file; --config.annotate.backend=lexicon)")
        read_json(self.section.server.extra, "server.extra")

    def _open(self) -> Annotator:
        judge = Judge(self.section.goal, self.template, self.texts, **vars(self.section.judge))
        return JudgeClient(judge, self.section.server, self.template, self.sampling)
