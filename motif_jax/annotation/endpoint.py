"""One HTTP endpoint and everything that can go wrong with it.

What failed is tried again after a pause that doubles, with jitter, and that is never shorter than the Retry-After of
the reply. Three things end this: a status that will not change (a wrong key, an unknown model), six failures of one
request while others succeed, and `patience_s` in which nothing at all has succeeded. The key is cut out of all texts
that come from the server.
"""

from __future__ import annotations

import asyncio
import datetime
import email.utils
import enum
import json
import random
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from motif_jax.annotation.annotator import Incomplete
from motif_jax.console import clean
from motif_jax.structs import UserError

URL, MODEL, KEY = "--config.annotate.server.url", "--config.annotate.model", "--config.annotate.server.key_variable"
FIRST_PAUSE_S, MAX_PAUSE_S, MAX_RETRY_AFTER_S = 0.5, 30.0, 600.0
TRIES = 6
RESTART_S = 60.0


class Blame(enum.Enum):
    """Whose fault a failure is, as far as one can tell."""

    BUSY = "the server is there and has no time"
    AWAY = "the server, or the way to it, is down; or this request takes it down"
    REQUEST = "the server fails at this request"


class Failed(Exception):
    """One attempt came to nothing."""

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
        """See `Server`. The key is sent as bearer token, and cut out of whatever the server says."""
        check_url(url)
        self.url, self._key = url.rstrip("/"), key
        self._timeout_s, self._patience_s = timeout_s, patience_s
        self._random = random.Random()
        self._session: aiohttp.ClientSession | None = None
        self.successes = 0
        self._last_success = time.monotonic()

    async def open(self) -> None:
        """Makes connections possible."""
        local = urlsplit(self.url).hostname in ("localhost", "127.0.0.1", "::1")
        headers = {"Content-Type": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        self._session = aiohttp.ClientSession(
            headers=headers,
            connector=aiohttp.TCPConnector(limit=0),  # whoever asks keeps the bound
            trust_env=not local,  # proxies
        )
        self._last_success = time.monotonic()

    async def close(self) -> None:
        """Ends what is under way and closes the connections."""
        mine = asyncio.current_task()
        others = [task for task in asyncio.all_tasks() if task is not mine]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def find_model(self, model: str, start_s: float) -> str:
        """Looks whether the server is there, lets us in, and has the model ("" for the only one that it has)."""
        deadline = time.monotonic() + start_s
        while True:
            try:
                left_s = max(deadline - time.monotonic(), FIRST_PAUSE_S)
                reply = await self._attempt("GET", "/models", None, left_s)
                names = [str(entry["id"]) for entry in reply["data"]]
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
        if not model and len(names) == 1:
            return names[0]
        if model not in names:
            what = f"has no model {model!r}" if model else "has several models" if names else "has no model yet"
            raise UserError(f"the server at {self.url!r} {what}: it has {', '.join(names[:8]) or 'none'} ({MODEL})")
        return model

    async def post(self, path: str, body: dict[str, Any], text: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        """The reply, whatever it takes. `text` picks out what it must have; where that fails the reply is garbage."""
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
            # A server that is being restarted may fail at everything for a while: that is nobody's fault.
            tries += blame is not Blame.BUSY and (served or (blame is Blame.REQUEST and silent_s > RESTART_S))
            if tries >= TRIES:
                raise Refused(0, f"{problem} ({tries} times)")
            if silent_s > self._patience_s:
                raise Incomplete(
                    f"the server at {self.url!r} has answered nothing for {silent_s:.0f} s, last: {problem} "
                    f"({URL}, --config.annotate.server.patience_s)"
                )
            backoff_s = min(MAX_PAUSE_S, FIRST_PAUSE_S * 2**pauses)
            await asyncio.sleep(max(pause_s, backoff_s) * self._random.uniform(1.0, 1.5))
            pauses += 1

    async def _attempt(
        self, method: str, path: str, body: dict[str, Any] | None, limit_s: float = float("inf")
    ) -> dict[str, Any]:
        assert self._session is not None, "it is not open"
        data = None if body is None else json.dumps(body).encode()
        options: dict[str, Any] = {"data": data, "allow_redirects": False}  # the key goes where it was sent
        options["timeout"] = aiohttp.ClientTimeout(total=min(self._timeout_s, limit_s))
        try:
            async with self._session.request(method, self.url + path, **options) as response:
                text = (await response.read()).decode("utf-8", "replace")
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            what = "no reply in time" if isinstance(error, asyncio.TimeoutError) else str(error)
            raise Failed(Blame.AWAY, self._clean(what or type(error).__name__)) from None
        status = response.status
        if status == 200:
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
        """One line of moderate length, without the key."""
        return self.without_key(" ".join(text.split()))[:300]

    def without_key(self, text: str) -> str:
        """Text that can be shown and stored."""
        return text.replace(self._key, "***") if self._key else text


def check_url(url: str) -> None:
    """Refuses what is no address, or one with a password in it."""
    try:
        parts = urlsplit(url)
        host, _ = (parts.hostname or "").encode("idna"), parts.port  # ValueError: a name or number that none can have
    except ValueError:
        host = b""
    if not host or b" " in host or parts.scheme not in ("http", "https") or not url.isprintable():
        raise UserError(f"{clean(repr(url), 100)} is no address such as http://127.0.0.1:8000/v1 ({URL})")
    if parts.username or parts.password or parts.query:
        raise UserError(f"the address must hold no user name, password or key: keys come from the environment ({KEY})")


def retry_after_s(header: str) -> float:
    """Seconds that a Retry-After header asks for: a number of seconds or a date."""
    try:
        seconds = float(header)
    except ValueError:
        try:
            date = email.utils.parsedate_to_datetime(header)
        except ValueError:
            return 0.0
        if date.tzinfo is None:
            date = date.replace(tzinfo=datetime.UTC)
        seconds = date.timestamp() - time.time()
    return min(max(seconds, 0.0), MAX_RETRY_AFTER_S) if seconds == seconds else 0.0
