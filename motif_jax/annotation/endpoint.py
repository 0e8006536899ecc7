"""A client of one HTTP endpoint, with retries, timeouts and checks of every reply.

A failed request is repeated after a pause that doubles, with jitter. The pause is not shorter than the Retry-After of
the reply, and never longer than what is left of `patience_s`. Three things end this: a status that will not change (a
wrong key, an unknown model), six failures of one request while others succeed, and `patience_s` in which nothing at all
has succeeded.

The server is not trusted. A reply is read up to MAX_REPLY_BYTES and within `timeout_s`, headers included; it is not
decompressed, its cookies are ignored, and its redirects are not followed. The key is cut out of all texts that come
from the server, and what is quoted of them is one short line without control characters.
"""

from __future__ import annotations

import asyncio
import enum
import json
import random
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, urlsplit

import aiohttp

from motif_jax.annotation.annotator import Incomplete
from motif_jax.console import LIMIT, clean
from motif_jax.structs import UserError
from motif_jax.system.http_replies import read_at_most, retry_after_s, split_address

URL, MODEL, KEY = "--config.annotate.server.url", "--config.annotate.model", "--config.annotate.server.key_variable"
FIRST_PAUSE_S, MAX_PAUSE_S = 0.5, 30.0
TRIES = 6
RESTART_S = 60.0
MAX_REPLY_BYTES = 2**22  # some hundred times the size of an answer or of a list of models
LONGEST_NAME = 300  # characters; longer names of models are not used


class Blame(enum.Enum):
    """Whose fault a failure is, as far as one can tell."""

    BUSY = "the server is there and has no time"
    AWAY = "the server, or the way to it, is down; or this request takes it down"
    REQUEST = "the server fails at this request"


class Failed(Exception):
    """One attempt failed; another may succeed."""

    def __init__(self, blame: Blame, problem: str, pause_s: float = 0.0):
        super().__init__(problem)
        self.blame, self.pause_s = blame, pause_s


class Refused(Exception):
    """The server will not answer this request, now or later."""

    def __init__(self, status: int, problem: str):
        super().__init__(problem)
        self.status = status


class Endpoint:
    """Posts requests until they are answered, between `open` and `close`."""

    def __init__(self, url: str, key: str, timeout_s: float, patience_s: float):
        """Arguments as for `Server`. The key is sent as bearer token, and removed from all texts of the server."""
        check_url(url)
        self.url, self._key = url.rstrip("/"), key
        # Also as error messages write it: in JSON, in quotes, in an address.
        written = {key, json.dumps(key)[1:-1], repr(key)[1:-1], repr(key.encode())[2:-1], quote(key), quote(key, "")}
        self._secrets = sorted(written - {""}, key=len, reverse=True)
        self._timeout_s, self._patience_s = timeout_s, patience_s
        self._random = random.Random()
        self._session: aiohttp.ClientSession | None = None
        self.successes = 0
        self._last_success = time.monotonic()

    async def open(self) -> None:
        """Creates the HTTP session."""
        local = urlsplit(self.url).hostname in ("localhost", "127.0.0.1", "::1")
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        self._session = aiohttp.ClientSession(
            headers=headers,
            connector=aiohttp.TCPConnector(limit=0),  # the caller bounds the requests in flight
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,  # a few bytes can be packed gigabytes
            trust_env=not local,  # proxies
        )
        self._last_success = time.monotonic()

    async def close(self) -> None:
        """Cancels all other tasks of the event loop and closes the connections."""
        mine = asyncio.current_task()
        others = [task for task in asyncio.all_tasks() if task is not mine]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def find_model(self, model: str, start_s: float) -> str:
        """Checks that the server answers, accepts the key and has `model` ("": its only one); returns the name."""
        deadline = time.monotonic() + start_s
        while True:
            try:
                left_s = max(deadline - time.monotonic(), FIRST_PAUSE_S)
                reply = await self._attempt("GET", "/models", None, left_s)
                names = [entry["id"] for entry in reply["data"]]
                break
            except Refused as refused:
                if refused.status == 404 and model:
                    return model  # a server that does not list its models
                raise UserError(f"the server at {self.url!r} does not list its models: {refused} ({URL})") from None
            except (KeyError, TypeError):
                raise UserError(f"{self.url!r} is no OpenAI-compatible endpoint: no list of models ({URL})") from None
            except Incomplete as hopeless:
                raise UserError(str(hopeless)) from None
            except Failed as failed:
                if time.monotonic() > deadline:
                    raise UserError(f"the server at {self.url!r} does not answer: {failed} ({URL})") from None
            await asyncio.sleep(FIRST_PAUSE_S)
        known = [name for name in names if self._is_name(name)]
        if model in known:
            return model
        if not model and len(names) == len(known) == 1:
            return known[0]
        what = f"has no model {model!r}" if model else "has several models" if known else "has no model yet"
        unusable = f", and {len(names) - len(known)} whose names cannot be used" if len(known) < len(names) else ""
        listed = f"it has {clean(', '.join(known[:8])) or 'none'}{unusable}"
        raise UserError(f"the server at {self.url!r} {what}: {listed} ({MODEL})")

    def _is_name(self, name: Any) -> bool:
        """Whether this can be shown, recorded and sent back as the name of a model."""
        if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME:
            return False
        return name.isprintable() and self.without_key(name) == name

    async def post(self, path: str, body: dict[str, Any], text: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        """Posts until a reply is good, and returns it. An attempt fails if `text` cannot read its reply."""
        tries, pauses, seen = 0, 0, self.successes
        while True:
            try:
                reply = await self._attempt("POST", path, body)
                text(reply)
                self.successes += 1
                self._last_success = time.monotonic()
                return reply
            except Failed as failed:
                problem, blame, pause_s = str(failed), failed.blame, failed.pause_s
            except (KeyError, IndexError, TypeError):
                problem, blame, pause_s = "its reply is not what was asked for", Blame.REQUEST, 0.0
            served, seen = self.successes > seen, self.successes
            silent_s = time.monotonic() - self._last_success
            # A server that is being restarted may fail at everything for a while: that does not count.
            tries += blame is not Blame.BUSY and (served or (blame is Blame.REQUEST and silent_s > RESTART_S))
            if tries >= TRIES:
                raise Refused(0, f"{problem} ({tries} times)")
            if silent_s > self._patience_s:
                raise Incomplete(
                    f"the server at {self.url!r} has answered nothing for {silent_s:.0f} s, last: {problem} "
                    f"({URL}, --config.annotate.server.patience_s)"
                )
            backoff_s = min(MAX_PAUSE_S, FIRST_PAUSE_S * 2**pauses)
            pause_s = max(pause_s, backoff_s) * self._random.uniform(1.0, 1.5)
            await asyncio.sleep(min(pause_s, self._patience_s - silent_s))  # then it is tried once more
            pauses = min(pauses + 1, 32)

    async def _attempt(
        self, method: str, path: str, body: dict[str, Any] | None, limit_s: float = float("inf")
    ) -> dict[str, Any]:
        assert self._session is not None, "it is not open"
        data = None if body is None else json.dumps(body).encode()
        options: dict[str, Any] = {"data": data, "allow_redirects": False}  # no other server gets the key
        options["timeout"] = aiohttp.ClientTimeout(total=min(self._timeout_s, limit_s))
        try:
            async with self._session.request(method, self.url + path, **options) as response:
                received, whole = await read_at_most(response, MAX_REPLY_BYTES)
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            what = "no reply in time" if isinstance(error, asyncio.TimeoutError) else str(error)
            raise Failed(Blame.AWAY, self._clean(what or type(error).__name__)) from None
        status = response.status
        packed = response.headers.get("Content-Encoding", "identity").lower() != "identity"
        text = "(packed)" if packed else received.decode("utf-8", "replace")
        if status == 200:
            if packed:
                raise Failed(Blame.REQUEST, "its reply is compressed, which was not asked for")
            if not whole:
                raise Failed(Blame.REQUEST, f"its reply is longer than {MAX_REPLY_BYTES / 2**20:g} MiB")
            try:
                reply = json.loads(text)
            except (ValueError, RecursionError):
                reply = None
            if isinstance(reply, dict):
                return reply
            raise Failed(Blame.REQUEST, "its reply is no JSON object")
        problem = self._clean(f"it answers {status} {response.reason}: {text}")
        pause_s = retry_after_s(response.headers.get("Retry-After", ""))
        if status in (408, 409, 425, 429, 503):
            raise Failed(Blame.BUSY, problem, pause_s)
        if status in (502, 504):
            raise Failed(Blame.AWAY, problem, pause_s)
        if status >= 500:
            raise Failed(Blame.REQUEST, problem, pause_s)
        if status in (401, 403):
            sent = "the key was refused" if self._key else "it wants a key, and none is set"
            raise Incomplete(f"the server at {self.url!r} lets nobody in: {sent} ({status}; {KEY})")
        if status == 404 and self.successes:
            raise Failed(Blame.AWAY, problem, pause_s)  # a proxy in front of a server that is being restarted
        raise Refused(status, problem)

    def _clean(self, text: str) -> str:
        """The start of a text as one harmless line, without the key. Its end is not shown: half a key may be there."""
        return clean(" ".join(self.without_key(text)[: 4 * LIMIT].split())[:LIMIT])

    def without_key(self, text: str) -> str:
        """The text with the key replaced, so that it can be stored."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text


def check_url(url: str) -> None:
    """Raises UserError if `url` is not an http(s) address, or holds a password or a query."""
    parts = split_address(url, URL)
    if parts.username or parts.password or parts.query:
        raise UserError(f"the address must hold no user name, password or key: keys come from the environment ({KEY})")
