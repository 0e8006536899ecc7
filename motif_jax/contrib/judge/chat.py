"""The server side of OpenAI's chat completions on loopback, for the embedded judge and for the servers of tests.

Captions are foreign text: one may look like the end of a caption and the start of the next. So `read_question` reads
the captions of a message only if they can be read in exactly one way.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import re
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from motif_jax.annotation.annotator import Question
from motif_jax.annotation.parsing import OPENING

LONGEST_BODY = 2**20  # bytes
PLACE = re.compile(r"\{(first|second|caption)\}")
Tops = Sequence[tuple[str, float]]  # candidate tokens at a position, and their probabilities


class LoopbackServer(ThreadingHTTPServer):
    """A server that listens on loopback only, with a thread for each connection."""

    daemon_threads = True
    request_queue_size = 256
    allow_reuse_address = True

    def __init__(self, port: int, handler: type[ChatHandler]):
        """Listens on `port`; 0: on a free port."""
        self.connections: set[Any] = set()
        super().__init__(("127.0.0.1", port), handler)

    @property
    def port(self) -> int:
        return self.server_address[1]

    def handle_error(self, *_: object) -> None:
        """Does not report broken connections."""


class ChatHandler(BaseHTTPRequestHandler):
    """Answers one connection's requests; a subclass has `do_GET` and `do_POST`."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: LoopbackServer

    def setup(self) -> None:
        """Registers the connection, so that it can be closed."""
        super().setup()
        self.server.connections.add(self.connection)

    def finish(self) -> None:
        self.server.connections.discard(self.connection)
        with contextlib.suppress(OSError):  # from flushing unsent data
            super().finish()

    def log_message(self, *_: object) -> None:
        """Does not log requests."""

    def read_body(self) -> dict[str, Any]:
        """The request, a JSON object; raises ValueError for anything else."""
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdecimal() and len(length) < 9 and int(length) <= LONGEST_BODY):
            self.close_connection = True  # else the unread body would be parsed as the next request
            raise ValueError(f"a request must say its length, of up to {LONGEST_BODY:,} bytes")
        try:
            body = json.loads(self.rfile.read(int(length)))
        except RecursionError:
            body = None
        if not isinstance(body, dict):
            raise ValueError("the request is not a JSON object")
        return body

    def reply(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
        """Sends a reply: a string as it is, any other value as JSON."""
        data = (body if isinstance(body, str) else json.dumps(body)).encode()
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def list_models(self, names: Sequence[str]) -> None:
        self.reply(200, {"object": "list", "data": [{"id": name, "object": "model"} for name in names]})


def user_text(body: dict[str, Any]) -> str:
    """The user's first message in a conversation; raises ValueError if there is none."""
    messages = body.get("messages")
    for message in messages if isinstance(messages, list) else []:
        if isinstance(message, dict) and message.get("role") == "user" and isinstance(message.get("content"), str):
            return str(message["content"])
    raise ValueError("the conversation has no message of the user")


def read_question(shown: str, captions: str) -> Question | None:
    """Recovers the captions from a rendered `Prompt.captions`; None unless there is exactly one way to read them.

    `shown`: the end of the user's message. `captions`: the template with the places.
    """
    matches = [pattern.fullmatch(shown) for pattern in _patterns(captions)]
    ways = [match.groupdict() for match in matches if match]
    if not ways or ways[0] != ways[1]:  # the longest and the shortest first caption differ: the text is ambiguous
        return None
    return Question(ways[0]["caption"]) if "caption" in ways[0] else Question(ways[0]["first"], ways[0]["second"])


@functools.lru_cache(maxsize=64)
def _patterns(captions: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Two patterns that match the template with captions filled in: one is greedy, the other is not."""
    patterns = []
    for shortest in ("", "?"):
        parts, known = [], set()
        for number, piece in enumerate(PLACE.split(captions)):
            if number % 2 == 0:
                parts.append(re.escape(piece))
            elif piece in known:
                parts.append(f"(?P={piece})")
            else:
                parts.append(f"(?P<{piece}>.*{shortest})")
                known.add(piece)
        patterns.append(re.compile("".join(parts), re.DOTALL))
    return patterns[0], patterns[1]


def completion(content: str, body: dict[str, Any], verdict: Tops) -> dict[str, Any]:
    """A chat completion.

    If the request `body` asks for log-probabilities, the reply has `verdict`: the candidates for a verdict token at the
    start, most likely first.
    """
    choice: dict[str, Any] = {"index": 0, "finish_reason": "stop"}
    choice["message"] = {"role": "assistant", "content": content}
    if body.get("logprobs"):
        opened = bool(body.get("continue_final_message"))
        places: list[Tops] = [verdict] if opened else [[(OPENING, 1.0)], verdict]
        choice["logprobs"] = {"content": [_place(tops) for tops in places]}
    return {"object": "chat.completion", "choices": [choice]}


def _place(tops: Tops) -> dict[str, Any]:
    listed = [{"token": token, "logprob": math.log(probability)} for token, probability in tops]
    return {**listed[0], "top_logprobs": listed}
