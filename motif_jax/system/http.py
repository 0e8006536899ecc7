"""The client of untrusted HTTP servers: of judges (annotation/client.py), of worlds, and of writers of rewards.

A failed request is repeated after a pause that doubles, with jitter; the pause respects the reply's Retry-After and the
rest of `patience_s`. A request is refused after a permanent status, or after TRIES failures that count. Those are wrong
replies and, while the server answers other requests or after RESTART_S, all others that do not mean that it is down or
busy: before, it may be restarting. A server without a successful reply for `patience_s` is down.

A reply is read up to MAX_REPLY_BYTES and within `timeout_s`, headers included. It is not decompressed, its cookies are
ignored, and redirects are not followed. The key is removed from all texts of the server, and quotes of them are one
short line without control characters. (The package `openai` has none of these bounds; with it, all of this would stay.)
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import email.utils
import json
import random
import re
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import aiohttp

from motif_jax.console import LIMIT, clean
from motif_jax.structs import UserError

FIRST_PAUSE_S, MAX_PAUSE_S = 0.25, 30.0
TRIES = 6
CLOSING_S = 5.0
RESTART_S = 60.0  # a server that answers nothing may be restarting
MAX_REPLY_BYTES = 2**22  # hundreds of times the size of an answer or of a list of models
MAX_RETRY_AFTER_S = 600.0
BUSY = (408, 409, 425, 429, 503)  # statuses of a busy server
NO_ACCESS = (401, 403)
ADDRESS = re.compile(r"(?i:https?)://(\[[^\s/?#@\]]+\]|[^\s/?#@:\[\]]+)(:\d{1,5})?(/[^\s?#]*)?")
Result = TypeVar("Result")


class Failed(Exception):
    """One attempt failed."""

    def __init__(self, status: int, problem: str, pause_s: float = 0.0, closed: bool = False):
        """Takes the status (0: no reply; 200: a wrong reply), one line, and the pause that the server asks for.

        `closed`: there was no connection, as nothing listens at the address.
        """
        super().__init__(problem)
        self.status, self.pause_s, self.closed = status, pause_s, closed


class Refused(Failed):
    """The server will never answer this request."""


class Down(Failed):
    """The server has not answered any request for `patience_s`, or refuses access."""


class HttpClient:
    """Asks one server."""

    def __init__(self, url: str, flag: str, timeout_s: float, patience_s: float, key: str = "", key_flag: str = ""):
        """Checks the address; connects later.

        `flag`, `key_flag`: the config values of address and key, for messages. `timeout_s`: of one attempt.
        `patience_s`: without any success. `key`: the bearer token; it is never shown.
        """
        check_address(url, flag, key_flag)
        self.url, self.flag = url.rstrip("/"), flag
        self._timeout_s, self._patience_s = timeout_s, patience_s
        # The key as it may appear in error messages: in JSON, in quotes, in an address.
        written = {key, json.dumps(key)[1:-1], repr(key)[1:-1], repr(key.encode())[2:-1], quote(key), quote(key, "")}
        self._secrets = sorted(written - {""}, key=len, reverse=True)
        self._headers = {"Accept-Encoding": "identity"} | ({"Authorization": f"Bearer {key}"} if key else {})
        self._random = random.Random()  # spreads the attempts of several workers
        self._session: aiohttp.ClientSession | None = None
        self.loop: asyncio.AbstractEventLoop | None = None  # while it is open
        self._successes = 0
        self._last_success = 0.0
        self._failing_since: float | None = None

    def start(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        """Runs a coroutine in the client's event loop, on a thread that signals do not interrupt."""
        if self.loop is None:
            self.loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self.loop.run_forever, name="requests", daemon=True)
            self._thread.start()
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def post(self, path: str, read: Callable[[Any], Result], **options: Any) -> Result:
        """Waits for `until_good`; raises UserError. Connections stay open until `close`."""
        try:
            return self.start(self.until_good(path, read, **options)).result()
        except BaseException as error:
            self.close()  # the caller may give up without calling it
            if isinstance(error, Refused):
                raise UserError(f"the server at {self.url!r} refuses {path!r}: {error} ({self.flag})") from None
            if isinstance(error, Down):
                raise UserError(f"{error} ({self.flag})") from None
            raise

    def close(self) -> None:
        """Cancels all requests, closes the connections, and ends the thread; `start` begins another one."""
        if self.loop is None:
            return
        loop, self.loop, self._failing_since = self.loop, None, None
        try:
            with contextlib.suppress(TimeoutError):  # the machine is busy; the connections end with the process
                asyncio.run_coroutine_threadsafe(self._disconnect(), loop).result(CLOSING_S)
        finally:
            loop.call_soon_threadsafe(loop.stop)
            self._thread.join(CLOSING_S)
            if not self._thread.is_alive():
                loop.close()

    # ---- in the event loop

    async def _disconnect(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def until_good(self, path: str, read: Callable[[Any], Result], **options: Any) -> Result:
        """Posts until a reply is good. Raises Refused or Down.

        `read` maps a reply's JSON to the result; raises ValueError, TypeError, KeyError or IndexError if it is wrong.
        `options`: the body, for aiohttp: `json`, or `data` for a form.
        """
        tries, failures, seen = 0, 0, self._successes
        while True:
            started = time.monotonic()
            try:
                result = read(await self.attempt("POST", path, **options))
                self._successes += 1
                self._last_success, self._failing_since = time.monotonic(), None
                return result
            except Failed as error:
                failed = error
            except (ValueError, TypeError, KeyError, IndexError):
                failed = Failed(200, "its reply does not have the expected format")
            if failed.status in NO_ACCESS:
                raise Down(failed.status, self.no_access(failed.status)) from None
            if not self.may_change(failed.status):
                raise Refused(failed.status, str(failed)) from None
            if self._failing_since is None:
                self._failing_since = max(started, self._last_success)
            silent_s = time.monotonic() - self._failing_since
            served, seen = self._successes > seen, self._successes
            # While nothing is served, the server may be restarting. A busy one is just waited for.
            may_restart = failed.status in (0, 404, 502, 504) or silent_s <= RESTART_S
            tries += failed.status not in BUSY and (served or failed.status == 200 or not may_restart)
            if silent_s > self._patience_s:
                problem = f"the server at {self.url!r} has answered nothing for {silent_s:.0f} s, last: {failed}"
                raise Down(failed.status, problem) from None
            if tries >= TRIES:
                raise Refused(0, f"{failed} ({tries} times)") from None
            pause_s = max(failed.pause_s, min(MAX_PAUSE_S, FIRST_PAUSE_S * 2 ** min(failures, 32)))
            failures += 1
            pause_s *= self._random.uniform(1.0, 1.5)
            await asyncio.sleep(min(pause_s, self._patience_s - silent_s))  # leaves time for a last attempt

    async def attempt(self, method: str, path: str, limit_s: float = float("inf"), **options: Any) -> Any:
        """The JSON of a reply; raises Failed."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                headers=self._headers,
                connector=aiohttp.TCPConnector(limit=0),  # the caller bounds the requests in flight
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,  # a few bytes can unpack to gigabytes
                trust_env=urlsplit(self.url).hostname not in ("localhost", "127.0.0.1", "::1"),  # proxies
            )
        options["timeout"] = aiohttp.ClientTimeout(total=min(self._timeout_s, limit_s))
        options["allow_redirects"] = False  # another server must not get the key
        body = bytearray()
        try:
            async with self._session.request(method, self.url + path, **options) as response:
                async for part in response.content.iter_any():
                    body += part
                    if len(body) > MAX_REPLY_BYTES:
                        response.close()  # does not wait for the rest
                        break
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:  # ValueError: impossible headers
            what = "no reply in time" if isinstance(error, TimeoutError) else str(error)
            of_name_or_keys = isinstance(error, aiohttp.ClientConnectorDNSError | aiohttp.ClientSSLError)
            closed = isinstance(error, aiohttp.ClientConnectorError) and not of_name_or_keys
            raise Failed(0, self._line(what or type(error).__name__), closed=closed) from None
        packed = response.headers.get("Content-Encoding", "identity").lower() != "identity"
        text = "(packed)" if packed else body.decode("utf-8", "replace")
        if response.status != 200:
            pause_s = retry_after_s(response.headers.get("Retry-After", ""))
            problem = self._line(f"it answers {response.status} {response.reason}: {text}")
            raise Failed(response.status, problem, pause_s)
        if packed or len(body) > MAX_REPLY_BYTES:
            raise Failed(200, f"its reply is compressed, or longer than {MAX_REPLY_BYTES:,} bytes")
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            raise Failed(200, "its reply is not JSON") from None

    def may_change(self, status: int) -> bool:
        """Whether another attempt may succeed after this status; a proxy answers 404 while its server restarts."""
        return status in (0, 200, *BUSY) or status >= 500 or (status == 404 and self._successes > 0)

    # ---- texts of the server

    def no_access(self, status: int) -> str:
        """The problem with the key, after a status of NO_ACCESS."""
        sent = "the key was refused" if self._secrets else "it wants a key, and none is set"
        return f"the server at {self.url!r} refuses access: {sent} ({status})"

    def without_key(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text

    def _line(self, text: str) -> str:
        """The start of a text as one safe line without the key. The end is cut off: it may contain half a key."""
        return clean(" ".join(self.without_key(text)[: 4 * LIMIT].split())[:LIMIT])


def check_address(url: str, flag: str, key_flag: str = "") -> None:
    """Raises UserError if `url` is not an http(s) address of host, port and path; flags as for `HttpClient`."""
    try:
        parts = urlsplit(url)
        works = parts.port != 0 and bool((parts.hostname or "").encode("idna"))
    except ValueError:  # an impossible host name or port number
        works = False
    if not works or not ADDRESS.fullmatch(url) or not url.isprintable():
        key = f"; keys come from the environment: {key_flag}" if key_flag else ""
        raise UserError(  # without the text, which may contain a password
            "this is not an address such as http://127.0.0.1:8000/v1, without user name, password or query "
            f"({flag}{key})"
        )


def retry_after_s(header: str) -> float:
    """The pause of a Retry-After header, which is a number of seconds or a date; 0 for anything else."""
    try:
        seconds = float(header)
    except ValueError:
        try:
            date = email.utils.parsedate_to_datetime(header)
        except (ValueError, OverflowError):  # OverflowError: numbers with 20 digits
            return 0.0
        seconds = (date if date.tzinfo else date.replace(tzinfo=datetime.UTC)).timestamp() - time.time()
    return min(max(seconds, 0.0), MAX_RETRY_AFTER_S) if seconds == seconds else 0.0
