"""An OpenAI-compatible server on loopback that judges by the lexicon, and misbehaves as it is told."""

from __future__ import annotations

import contextlib
import json
import math
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from nethack_texts import NETHACK

from motif_jax.annotation.annotator import Question
from motif_jax.annotation.lexicon import Lexicon

PAIR = re.compile(r'"(?:description|message)_1": "(.*)"\n\}\n\n\{\n"(?:description|message)_2": "(.*)"', re.DOTALL)
ONE = re.compile(r'"description": "(.*)"\n\}', re.DOTALL)
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
        self._port = 0
        self._server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/v1"

    def start(self) -> None:
        handler = type("Handler", (Handler,), {"chat": self})
        self._server = Quiet(("127.0.0.1", self._port), handler)
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        for connection in list(self._server.connections):
            with contextlib.suppress(OSError):
                connection.close()

    def __enter__(self) -> ChatServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def complete(self, body: dict[str, Any]) -> dict[str, Any]:
        """What a well-behaved server answers."""
        user = next(message["content"] for message in body["messages"] if message["role"] == "user")
        pair = PAIR.search(user)
        question = Question(*pair.groups()) if pair else Question(ONE.search(user)[1])
        yes = self.lexicon.answer(question).yes
        if pair:
            word = digit = {0.0: "1", 1.0: "2", 0.5: "None"}[yes]
            content = f'Thinking.\n("best_description": {word})'
        else:
            digit = {0.0: "0", 1.0: "1"}[yes]
            content = f'Thinking, ("helpful": yes) or ("helpful": no)?\n("helpful": {"yes" if yes else "no"})'
        choice: dict[str, Any] = {"message": {"role": "assistant", "content": content}}
        if body.get("logprobs"):
            digit = digit.replace("None", "0")
            rest = [other for other in "120" if other != digit]
            tops = [(digit, 0.8), (rest[0], 0.1), (f" {rest[1]}", 0.06), ("I", 0.04)]
            tokens = [] if body.get("continue_final_message") else [("(", [("(", 1.0)])]
            choice["logprobs"] = {"content": [
                {"token": token, "logprob": 0.0,
                 "top_logprobs": [{"token": name, "logprob": math.log(p)} for name, p in listed]}
                for token, listed in [*tokens, (digit, tops)]
            ]}  # fmt: skip
        usage = {"prompt_tokens": 300, "completion_tokens": 20, "prompt_tokens_details": {"cached_tokens": 256}}
        return {"choices": [choice], "usage": usage}


class Quiet(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256
    allow_reuse_address = True

    def __init__(self, *arguments: Any):
        self.connections: set[Any] = set()
        super().__init__(*arguments)

    def handle_error(self, *_: object) -> None:
        """Connections that are cut are part of the test."""


class Handler(BaseHTTPRequestHandler):
    chat: ChatServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def setup(self) -> None:
        super().setup()
        self.server.connections.add(self.connection)

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        if self.chat.greeting:
            self.send(self.chat.greeting(self.path))
        elif self.allowed():
            self.reply(200, {"data": [{"id": model} for model in self.chat.models]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
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
            case ["drop"]:  # in the middle of the answer
                self.wfile.write(b'HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{"choices": [{')
                self.wfile.flush()
                self.connection.close()
            case ["garbage"]:
                self.reply(200, "<html>all is well</html>")
            case ["nonsense"]:
                self.reply(200, {"choices": []})
            case ["mumble"]:
                reply = self.chat.complete(body)
                reply["choices"][0]["message"]["content"] = "Hard to say."
                self.reply(200, reply)
            case ["silence"]:
                reply = self.chat.complete(body)
                reply["choices"][0]["message"]["content"] = None
                self.reply(200, reply)
            case [status, *rest]:
                key = self.headers.get("Authorization", "")
                self.reply(int(status), {"error": f"no ({key})"}, dict(part.split("=") for part in rest))

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

    def reply(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
        data = (body if isinstance(body, str) else json.dumps(body)).encode()
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

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
