"""A server on loopback for worlds that ask one: answers questions about pictures, scores comments, or misbehaves."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import parse_qs

import chat_server
from chat_server import ChatServer

from motif_jax.contrib.guessing.world import ATTRIBUTE_OF, LocalAnswerer, Scene, Utterance

Fault = Callable[[int, str], Iterable[bytes] | None]


class WorldServer(ChatServer):
    """`fault` gives the whole reply to a request, None an honest one; `asked`: path and fields of every request."""

    def __init__(self, fault: Fault = lambda number, path: None):
        super().__init__(fault)
        self.handler = Handler

    @property
    def url(self) -> str:
        return super().url.removesuffix("/v1")

    def honest(self, path: str, fields: Any) -> Any:
        if path == "/":
            return {"scores": [float(text.count("!")) for text in fields["texts"]]}
        answerer = LocalAnswerer()
        number_of = dict(zip(ATTRIBUTE_OF, json.loads(fields["img_features"]), strict=True))
        ordered = sorted(ATTRIBUTE_OF, key=number_of.get)  # a scene's attributes have the largest numbers
        scene = Scene(fields["caption"], None, {ATTRIBUTE_OF[value]: value for value in ordered})
        history = [Utterance(**said) for said in json.loads(fields["history"])]
        assert json.loads(fields["generation_kwargs"]) == {"inference": "greedy", "beamSize": 1}
        if path == "/fetch_reward_rank":
            return answerer.begin(scene)
        assert path == "/step_rank"
        return list(answerer.answer(scene, history, 0.0))


class Handler(chat_server.Handler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        if self.headers["Content-Type"].startswith("application/json"):
            fields = json.loads(body)
        else:
            form = parse_qs(body, keep_blank_values=True, strict_parsing=True)
            fields = {name: values[0] for name, values in form.items()}
        number = len(self.chat.asked)
        self.chat.asked.append((self.path, fields))
        fault = self.chat.fault(number, self.path)
        if fault is None:
            self.reply(200, self.chat.honest(self.path, fields))
        else:
            self.send(fault)
