"""An OpenAI-compatible server on loopback that judges by the lexicon, and misbehaves as it is told."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from nethack_texts import NETHACK

from motif_jax.annotation.annotator import Question
from motif_jax.annotation.backends import Lexicon
from motif_jax.annotation.client import ChatClient
from motif_jax.annotation.prompts import make_prompt
from motif_jax.annotation.rule_server import ChatHandler, LoopbackServer, completion, user_text
from motif_jax.annotation.section import SamplingSection, ServerSection

PROMPTS = [("default", False), ("reworded", False), ("default", True)]
CAPTIONS = [
    re.compile(re.sub(r"\\{\w+\\}", "(.*)", re.escape(prompt.captions)) + r"\Z", re.DOTALL)
    for prompt in (make_prompt(NETHACK, "score", "defaultgoal", version, one=one) for version, one in PROMPTS)
]
Fault = Callable[[int, dict[str, Any]], str | Iterable[bytes]]


class ChatServer:
    """Serves until the end of its `with` block; `stop` and `start` in between are a restart on the same port."""

    def __init__(self, fault: Fault = lambda number, body: "", key: str = "", models: tuple[str, ...] = ("judge",)):
        """`fault` names what goes wrong with a request ("" nothing), by its number and body, or gives its reply."""
        self.fault, self.key, self.models = fault, key, models
        self.greeting: Callable[[str], Iterable[bytes]] | None = None  # the whole reply to who asks for the models
        self.asked: list[dict[str, Any]] = []  # bodies of all chat requests
        self.verdicts = 0  # that went out whole
        self.in_flight = self.most_in_flight = 0
        self.delay_s = 0.0
        self.lexicon = Lexicon(NETHACK, "defaultgoal")
        self.lock = threading.Lock()
        self.handler: type[ChatHandler] = Handler
        self._port = 0
        self.connections: set[socket.socket] = set()
        self._server: LoopbackServer | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/v1"

    def start(self) -> None:
        self._server = LoopbackServer(self._port, type("Handler", (self.handler,), {"chat": self}))
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        for connection in list(self.connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)  # a handler that waits for the next request would go on
                connection.close()

    def __enter__(self) -> ChatServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def complete(self, body: dict[str, Any]) -> dict[str, Any]:
        question = read(user_text(body))
        yes = self.lexicon.answer(question).yes
        if question.second is not None:
            digit = {0.0: "1", 1.0: "2", 0.5: "0"}[yes]
            content = f'Thinking.\n("best_description": {digit.replace("0", "None")})'
        else:
            digit = {0.0: "0", 1.0: "1"}[yes]
            content = f'Thinking, ("helpful": yes) or ("helpful": no)?\n("helpful": {"yes" if yes else "no"})'
        rest = [other for other in "120" if other != digit]
        tops = [(digit, 0.8), (rest[0], 0.1), (f" {rest[1]}", 0.06), ("I", 0.04)]
        usage = {"prompt_tokens": 300, "completion_tokens": 20, "prompt_tokens_details": {"cached_tokens": 256}}
        return completion(content, body, tops) | {"usage": usage}


def connect(
    url: str, mode: str = "reason", model: str = "", key: str = "", *, version: str = "default", in_flight: int = 16,
    **options: float,
) -> ChatClient:  # fmt: skip
    """A client of a server; only pytest's own deadline ends its patience, unless an option says otherwise."""
    options = {"timeout_s": 10_000.0, "patience_s": 10_000.0, "start_s": 10_000.0} | options
    sampling = SamplingSection(0.1, 0.95, 50, 200) if mode == "reason" else None
    server = ServerSection(url=url, in_flight=in_flight, **options)
    return ChatClient(server, model, make_prompt(NETHACK, mode, "defaultgoal", version), sampling, key)


def read(text: str) -> Question:
    shown = next(match for captions in CAPTIONS if (match := captions.search(text)))
    return Question(*shown.groups())


class Handler(ChatHandler):
    chat: ChatServer

    def setup(self) -> None:
        super().setup()
        self.chat.connections.add(self.connection)

    def finish(self) -> None:
        self.chat.connections.discard(self.connection)
        super().finish()

    def do_GET(self) -> None:
        if self.chat.greeting:
            self.send(self.chat.greeting(self.path))
        elif self.allowed():
            self.reply(200, {"object": "list", "data": [{"id": name, "object": "model"} for name in self.chat.models]})

    def do_POST(self) -> None:
        body = self.read_body()
        if not self.allowed():
            return
        with self.counted():
            with self.chat.lock:
                number = len(self.chat.asked)
                self.chat.asked.append(body)
            time.sleep(self.chat.delay_s)
            self.misbehave(self.chat.fault(number, body), body)

    def misbehave(self, fault: str | Iterable[bytes], body: dict[str, Any]) -> None:
        if not isinstance(fault, str):
            self.send(fault)
            return
        match fault.split():
            case []:
                self.reply(200, self.chat.complete(body))
                with self.chat.lock:
                    self.chat.verdicts += 1
            case ["slow", seconds]:
                time.sleep(float(seconds))
                self.reply(200, self.chat.complete(body))
            case ["mumble" | "silence"]:
                reply = self.chat.complete(body)
                reply["choices"][0]["message"]["content"] = "Hard to say." if fault == "mumble" else None
                self.reply(200, reply)
            case [status, *rest]:
                key = self.headers.get("Authorization", "")
                data = json.dumps({"error": f"no ({key})"}).encode()
                self.send_response(int(status))
                for name, value in (*(part.split("=") for part in rest), ("Content-Length", str(len(data)))):
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

    def send(self, parts: Iterable[bytes]) -> None:
        """Bytes as they are, for as long as somebody reads them; then the connection is closed."""
        self.close_connection = True
        with contextlib.suppress(OSError):
            for part in parts:
                self.wfile.write(part)

    def allowed(self) -> bool:
        fine = not self.chat.key or self.headers.get("Authorization") == f"Bearer {self.chat.key}"
        if not fine:
            self.reply(401, {"error": "who are you?"})
        return fine

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        chat = self.chat
        with chat.lock:
            chat.in_flight += 1
            chat.most_in_flight = max(chat.most_in_flight, chat.in_flight)
        try:
            yield
        finally:
            with chat.lock:
                chat.in_flight -= 1
