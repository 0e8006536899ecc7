"""A client of an HTTP server that is part of a world: one request at a time, repeated until the answer is good.

A failed request is repeated after a pause that doubles, not shorter than the Retry-After of the reply, until
`patience_s` are over. A status that will not change, and replies that are not what was asked for, end it earlier. The
server is not trusted: a reply is read up to MAX_REPLY_BYTES and within `timeout_s`, headers included; it is not
decompressed, cookies are ignored, redirects are not followed, and what is quoted of it is one short harmless line.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import urlsplit

import aiohttp

from motif_jax.console import LIMIT, clean
from motif_jax.structs import UserError
from motif_jax.system.http_replies import read_at_most, retry_after_s, split_address

FLAG = "--config.env.options"
FIRST_PAUSE_S, MAX_PAUSE_S = 0.25, 10.0
TRIES = 6  # of a request that the server answers with something else
MAX_REPLY_BYTES = 2**20
BUSY = (408, 409, 425, 429)  # statuses below 500 that may change
Result = TypeVar("Result")


class Failed(Exception):
    """One attempt failed; another may succeed."""

    def __init__(self, problem: str, pause_s: float = 0.0, answered: bool = False):
        super().__init__(problem)
        self.pause_s, self.answered = pause_s, answered  # answered: but not with what was asked for


class HttpClient:
    """Posts requests, each until it is answered; connections stay open until `close`."""

    def __init__(self, url: str, timeout_s: float, patience_s: float):
        """Takes the address, the time of one attempt and of all attempts of a request; connects only later."""
        check_address(url)
        self.url = url.rstrip("/")
        self._timeout_s, self._patience_s = timeout_s, patience_s
        self._random = random.Random()  # spreads the attempts of several workers
        self._loop: asyncio.AbstractEventLoop | None = None
        self._session: aiohttp.ClientSession | None = None

    def post_form(self, path: str, fields: Mapping[str, str], read: Callable[[Any], Result]) -> Result:
        """Posts a form; see `post_json`."""
        return self._post(path, {"data": dict(fields)}, read)

    def post_json(self, path: str, body: Any, read: Callable[[Any], Result]) -> Result:
        """Posts JSON until a reply is good; raises UserError if none is.

        Args:
          path: below the address.
          body: what is posted.
          read: makes the result of a reply's JSON; raises ValueError, TypeError, KeyError or IndexError if it cannot.
        """
        return self._post(path, {"json": body}, read)

    def close(self) -> None:
        """Closes the connections."""
        if self._loop is not None:
            if self._session is not None:
                self._loop.run_until_complete(self._session.close())
            self._loop.close()
            self._loop = self._session = None

    def _post(self, path: str, options: dict[str, Any], read: Callable[[Any], Result]) -> Result:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        try:
            return self._loop.run_until_complete(self._until_good(path, options, read))
        except BaseException:  # the world is given up, and nobody may be left to close this
            self.close()
            raise

    async def _until_good(self, path: str, options: dict[str, Any], read: Callable[[Any], Result]) -> Result:
        begin, pause_s, wrong = time.monotonic(), FIRST_PAUSE_S, 0
        while True:
            try:
                reply = await self._attempt(path, options)
                try:
                    return read(reply)
                except (ValueError, TypeError, KeyError, IndexError):
                    raise Failed("its reply is not what was asked for", answered=True) from None
            except Failed as failed:
                wrong += failed.answered
                over_s = time.monotonic() - begin
                if wrong >= TRIES or over_s > self._patience_s:
                    raise UserError(
                        f"the server at {self.url!r} gives no good answer in {over_s:.0f} s, last: {failed} ({FLAG})"
                    ) from None
                wait_s = max(failed.pause_s, pause_s) * self._random.uniform(1.0, 1.5)
                await asyncio.sleep(min(wait_s, self._patience_s - over_s))  # then it is tried once more
                pause_s = min(2 * pause_s, MAX_PAUSE_S)

    async def _attempt(self, path: str, options: dict[str, Any]) -> Any:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                headers={"Accept-Encoding": "identity"},
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,  # a few bytes can be packed gigabytes
                trust_env=urlsplit(self.url).hostname not in ("localhost", "127.0.0.1", "::1"),  # proxies
            )
        limit = aiohttp.ClientTimeout(total=self._timeout_s)
        try:
            async with self._session.post(self.url + path, allow_redirects=False, timeout=limit, **options) as response:
                received, whole = await read_at_most(response, MAX_REPLY_BYTES)
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:  # ValueError: headers that are none
            what = "no reply in time" if isinstance(error, TimeoutError) else str(error)
            raise Failed(_line(what or type(error).__name__)) from None
        packed = response.headers.get("Content-Encoding", "identity").lower() != "identity"
        if response.status == 200:
            if packed or not whole:
                what = "compressed, which was not asked for" if packed else f"longer than {MAX_REPLY_BYTES:,} bytes"
                raise Failed(f"its reply is {what}", answered=True)
            try:
                return json.loads(received)
            except (ValueError, RecursionError):
                raise Failed("its reply is no JSON", answered=True) from None
        said = "(packed)" if packed else received.decode("utf-8", "replace")
        problem = _line(f"it answers {response.status} {response.reason}: {said}")
        if response.status in BUSY or response.status >= 500:
            raise Failed(problem, retry_after_s(response.headers.get("Retry-After", "")))
        raise UserError(f"the server at {self.url!r} refuses {path!r}: {problem} ({FLAG})")


def check_address(url: str) -> None:
    """Raises UserError if `url` is not an http(s) address, or holds a password or a query."""
    parts = split_address(url, FLAG)
    if parts.username or parts.password or parts.query or parts.fragment:
        raise UserError(f"the address of a server must hold no user name, password or query ({FLAG})")


def _line(text: str) -> str:
    return clean(" ".join(text[: 4 * LIMIT].split())[:LIMIT])
