"""What a server may send that no honest one sends: a name for each lie, and the bytes of its reply, perhaps endless."""

from __future__ import annotations

import contextlib
import gzip
import itertools
import json
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

ESCAPE = "\x1b]0;owned\x07\x1b[2J\x9b31m"  # sets a title, clears the screen, turns red
OK = b"HTTP/1.1 200 OK\r\n"
JSON = OK + b"Content-Type: application/json\r\n"
CHUNKED = JSON + b"Transfer-Encoding: chunked\r\n\r\n"
BLOCK = 2**16
Lie = Callable[[], Iterable[bytes]]


@pytest.fixture(autouse=True)
def nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """Whatever is sent; for the tests of each module that imports this."""
    yield
    printed = capfd.readouterr()
    assert printed == ("", ""), printed


@contextlib.contextmanager
def bounded(mib: float) -> Iterator[None]:
    """At no moment the process takes so much more memory than before."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = _peak_mib()
    yield
    assert (more := _peak_mib() - before) < mib, more


def _peak_mib() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def reply(body: bytes | str, head: bytes = JSON) -> Iterator[bytes]:
    data = body.encode("utf-8", "surrogatepass") if isinstance(body, str) else body
    yield head + b"Content-Length: %d\r\n\r\n" % len(data) + data


def say(content: object) -> str:
    """A chat completion with this content, which may be no text."""
    return json.dumps({"choices": [{"message": {"content": content}}]})


def scored(logprob: str, token: str = '"2"') -> str:
    """A scored completion, with this JSON in place of the log-probability."""
    top = f'{{"token": {token}, "logprob": {logprob}}}'
    return (
        f'{{"choices": [{{"message": {{"content": ""}}, "logprobs": {{"content": [{{"top_logprobs": [{top}]}}]}}}}]}}'
    )


def endless(start: bytes, part: bytes) -> Iterator[bytes]:
    """For ever, as fast as it is read."""
    yield start
    yield from itertools.repeat(part)


def drip(start: bytes, part: bytes) -> Iterator[bytes]:
    """For ever, slower than any patience."""
    yield start
    while True:
        time.sleep(0.05)
        yield part


def bomb(encoding: str, packed: bytes) -> Iterator[bytes]:
    return reply(packed, JSON + f"Content-Encoding: {encoding}\r\n".encode())


ENDLESS: dict[str, Lie] = {
    "endless body": lambda: endless(JSON + b"Content-Length: 99999999999\r\n\r\n", b" " * BLOCK),
    "endless chunks": lambda: endless(CHUNKED, b"10000\r\n" + b" " * BLOCK + b"\r\n"),
    "endless headers": lambda: endless(OK, b"X-More: and more\r\n" * 1000),
    "endless status line": lambda: endless(b"HTTP/1.1 200 ", b"O" * BLOCK),
    "dripping body": lambda: drip(JSON + b"Content-Length: 99999999999\r\n\r\n", b" "),
    "dripping status line": lambda: drip(b"", b"H"),
}
FINITE: dict[str, Lie] = {
    "gzip bomb": lambda: bomb("gzip", gzip.compress(bytes(2**27), 1)),
    "more than a reply may have": lambda: itertools.chain(
        [JSON + b"Content-Length: %d\r\n\r\n" % 2**27], itertools.repeat(b" " * BLOCK, 2**27 // BLOCK)
    ),
    "a length that is none": lambda: iter([JSON + b"Content-Length: many\r\n\r\n{}"]),
    "a chunk larger than all memory": lambda: iter([CHUNKED + b"ffffffffffffffffff\r\n{}"]),
    "204 No Content": lambda: iter([b"HTTP/1.1 204 No Content\r\n\r\n"]),
    "NUL in a header": lambda: iter([OK + b"X: a\0b\r\nContent-Length: 2\r\n\r\n{}"]),
    "escape sequences in headers": lambda: reply(
        ESCAPE, f"HTTP/1.1 500 {ESCAPE}\r\nSet-Cookie: {ESCAPE}=1; Path={ESCAPE}\r\nX: {ESCAPE}\r\n".encode()
    ),
    "400": lambda: reply("", b"HTTP/1.1 400 No\r\n"),
    "elsewhere": lambda: reply("", b"HTTP/1.1 307 Go\r\nLocation: http://127.0.0.1:9/v1\r\n"),
    "nested lists": lambda: reply("[" * 100_000),
    "a number of 5,000 digits": lambda: reply('{"choices": ' + "9" * 5000 + "}"),
    "null": lambda: reply("null"),
    "bytes that are no text": lambda: reply(b'{"choices": [{"message": {"content": "\xff\xfe\x80"}}]}'),
    "half a character": lambda: reply('{"choices": [{"message": {"content": "\\ud800"}}]}'),
    "escape sequences in an answer": lambda: reply(say(ESCAPE * 50)),
    "an answer of 3 MB": lambda: reply(say("hm " * 1_000_000)),
    "an answer that takes for ever to search": lambda: reply(say("bestmessage" * 30_000)),
    **{
        f"{name}: {value[:20]}": lambda form=form, value=value: reply(form.replace("?", value))
        for name, form in {
            "choices": '{"choices": ?}',
            "message": '{"choices": [{"message": ?}]}',
            "content": '{"choices": [{"message": {"content": ?}}]}',
            "usage": '{"choices": [{"message": {"content": ""}}], "usage": ?}',
            "tokens": '{"choices": [{"message": {"content": ""}}], "usage": {"prompt_tokens": ?}}',
            "logprobs": '{"choices": [{"message": {"content": ""}, "logprobs": ?}]}',
            "tops": '{"choices": [{"message": {"content": ""}, "logprobs": {"content": [{"top_logprobs": ?}]}}]}',
        }.items()
        for value in ("null", "-1", "1e999", '"text"', "[null]", '{"0": {}}', "9" * 400)
    },
    **{
        f"log-probability {value[:20]}": lambda value=value: reply(scored(value))
        for value in ("Infinity", "NaN", "9" * 400, "709", '"no"')
    },
    **{f"token {token}": lambda token=token: reply(scored("-0.1", token)) for token in ("null", '{"2": 2}')},
}  # fmt: skip
BUSY: dict[str, Lie] = {
    f"Retry-After: {value[:30]}": lambda value=value: reply(
        "busy", f"HTTP/1.1 429 Busy\r\nRetry-After: {value}\r\n".encode("utf-8", "surrogateescape")
    )
    for value in (
        "9" * 5000, "inf", "nan", "-1", "", "tomorrow", "\uff11\uff12\uff13", "Fri, 31 Dec 9999 23:59:59 GMT",
        "Wed, 21 Oct 99999999999999999999 07:28:00 GMT", "Mon, 01 Jan 0001 00:00:00 +2359", "(" * 3000, ESCAPE,
    )
}  # fmt: skip
LIES = ENDLESS | FINITE | BUSY
