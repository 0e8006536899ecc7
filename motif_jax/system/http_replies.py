"""Replies of HTTP servers that are not trusted: how much of them is read, when to ask again, and addresses."""

from __future__ import annotations

import datetime
import email.utils
import time
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

from motif_jax.console import clean
from motif_jax.structs import UserError

if TYPE_CHECKING:
    import aiohttp

MAX_RETRY_AFTER_S = 600.0


async def read_at_most(response: aiohttp.ClientResponse, limit: int) -> tuple[bytes, bool]:
    """The body of a reply, and whether that is all of it; of a longer one about `limit` bytes are read."""
    body = bytearray()
    async for part in response.content.iter_any():
        body += part
        if len(body) > limit:
            response.close()  # without waiting for the rest
            return bytes(body), False
    return bytes(body), True


def split_address(url: str, flag: str) -> SplitResult:
    """The parts of an http(s) address; raises UserError, which names `flag`, if `url` is none."""
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").encode("idna"), parts.port
    except ValueError:  # an impossible host name or port number
        parts, host, port = urlsplit(""), b"", None
    printed = url.isprintable() and " " not in url
    if not host or b" " in host or port == 0 or parts.scheme not in ("http", "https") or not printed:
        raise UserError(f"{clean(repr(url), 100)} is no address such as http://127.0.0.1:8000/v1 ({flag})")
    return parts


def retry_after_s(header: str) -> float:
    """Seconds that a Retry-After header asks for, a number of seconds or a date; 0 for what is neither."""
    try:
        seconds = float(header)
    except ValueError:
        try:
            date = email.utils.parsedate_to_datetime(header)
        except (ValueError, OverflowError):  # OverflowError: of a year, an hour or a zone with 20 digits
            return 0.0
        if date.tzinfo is None:
            date = date.replace(tzinfo=datetime.UTC)
        seconds = date.timestamp() - time.time()
    return min(max(seconds, 0.0), MAX_RETRY_AFTER_S) if seconds == seconds else 0.0
