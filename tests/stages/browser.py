"""A headless Chromium, driven over its debugging protocol: opens a page, evaluates, presses keys, clicks, looks."""

import asyncio
import contextlib
import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
from conftest import wait_for

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage", "--hide-scrollbars",
    "--mute-audio", "--remote-debugging-port=0",
)  # fmt: skip


def find_chromium() -> str | None:
    """The program, if this machine has one that starts; some systems have a stand-in that only says how to get it."""
    programs = [path for name in NAMES if (path := shutil.which(name))]
    return next(
        (path for path in programs if not subprocess.run([path, "--version"], capture_output=True).returncode), None
    )


class Page:
    """A tab, and everything that it complained about or asked for."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, loop: asyncio.AbstractEventLoop):
        self._socket, self._loop, self._number = socket, loop, 0
        self.errors: list[str] = []  # exceptions, errors on the console, refusals by the page's policy
        self.requests: list[str] = []  # everything that was asked for
        self._loaded = 0
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **params: Any) -> Any:
        """A command, and its answer."""
        return self._loop.run_until_complete(self._send(method, params))

    async def _send(self, method: str, params: dict[str, Any]) -> Any:
        self._number += 1
        number = self._number
        await self._socket.send_json({"id": number, "method": method, "params": params})
        while True:
            message = await self._receive()
            if message.get("id") == number:
                assert "error" not in message, message
                return message["result"]

    async def _receive(self) -> dict[str, Any]:
        message = json.loads((await self._socket.receive()).data)
        method, params = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(params["entry"]["text"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "assert"):
            self.errors.append(str(params["args"]))
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Page.loadEventFired":
            self._loaded += 1
        return message

    def open(self, file: Path) -> None:
        """A file, until it is loaded."""
        before = self._loaded
        self.send("Page.navigate", url=file.resolve().as_uri())
        while self._loaded == before:
            self._loop.run_until_complete(self._receive())

    def run(self, script: str) -> Any:
        """What an expression comes to; promises are waited for."""
        answer = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, condition: str) -> None:
        """Until an expression is true."""
        wait_for(lambda: self.run(condition))

    def press(self, key: str) -> None:
        """A key, where the focus is."""
        event = f"new KeyboardEvent('keydown', {{key: {json.dumps(key)}, bubbles: true, cancelable: true}})"
        self.run(f"document.activeElement.dispatchEvent({event})")

    def click(self, selector: str) -> None:
        """Clicks on an element."""
        self.run(f"document.querySelector({json.dumps(selector)}).click()")


@contextlib.contextmanager
def browser() -> Iterator[Page]:
    """A Chromium with one tab; everything of it is gone afterwards."""
    program = find_chromium()
    assert program, "no Chromium"
    with tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as profile:
        command = [program, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        loop = asyncio.new_event_loop()
        session = None
        try:
            port = _port(Path(profile) / "DevToolsActivePort", process)
            session = aiohttp.ClientSession(loop=loop)
            tab = wait_for(lambda: loop.run_until_complete(_tabs(session, port)))[0]
            socket = loop.run_until_complete(session.ws_connect(tab["webSocketDebuggerUrl"], max_msg_size=2**28))
            yield Page(socket, loop)
        finally:
            if session:
                loop.run_until_complete(session.close())
            loop.close()
            process.terminate()
            process.wait()


async def _tabs(session: aiohttp.ClientSession, port: int) -> list[dict[str, Any]]:
    async with session.get(f"http://127.0.0.1:{port}/json/list") as reply:
        return [tab for tab in await reply.json() if tab["type"] == "page"]


def _port(file: Path, process: subprocess.Popen) -> int:
    """Where it listens, once it does."""

    def lines() -> list[str]:
        assert process.poll() is None, f"Chromium ended with status {process.returncode}"
        return file.read_text().splitlines() if file.exists() else []

    return int(wait_for(lines)[0])
