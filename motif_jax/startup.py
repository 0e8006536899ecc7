"""The program's first moments and its last: standard streams that exist, signals before anything is loaded, last words.

Imports nothing that takes long: what is here must be in place before the rest is imported.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from motif_jax.console import clean

OUTPUTS = ("standard output", "standard error")  # what errors call them
STOPPED = "stopped; give the same command again to go on"
LIMIT = 2000  # characters of a last sentence


def begin() -> None:
    """Prepares this process; call it before other imports, and only where the process is the program's own."""
    open_streams()
    for number in (signal.SIGINT, signal.SIGTERM):  # until there is something that must be given back: launch.py
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, end_now)
    sys.unraisablehook = report_ignored


def end_now(number: int, _: FrameType | None = None) -> None:
    """Handler of signals while nothing has been started: imports would only make a traceback of an exception."""
    say(STOPPED)
    os._exit(128 + number)


def open_streams() -> None:
    """Makes sure that descriptors 0 to 2 are open, and that any text can be written to the last two.

    A closed one would be given to the next file that is opened, and then a data file gets the messages.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest number that is free: this one
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115  (never closed)
    for name, title in zip(("stdout", "stderr"), OUTPUTS, strict=True):
        stream = Output(getattr(sys, name), title)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def report_ignored(ignored: Any) -> None:
    """Prints what was raised where nobody could be told, but for what tensorstore's threads have for an ended loop.

    There are hundreds of lines of that when a disk is full. The failure itself is raised where the write was asked for.
    """
    if threading.current_thread() is threading.main_thread() or str(ignored.exc_value) != "Event loop is closed":
        sys.__unraisablehook__(ignored)


class Output(io.TextIOWrapper):
    """A standard stream that takes any text, and whose errors tell that they are its own."""

    def __init__(self, stream: io.TextIOWrapper, title: str):
        """Takes the place of `stream`."""
        lines, through, encoding = stream.line_buffering, stream.write_through, stream.encoding
        super().__init__(stream.detach(), encoding, "backslashreplace", line_buffering=lines, write_through=through)
        self._title = title

    def write(self, text: str) -> int:
        """As of any stream."""
        with self._named():
            return super().write(text)

    def flush(self) -> None:
        """As of any stream."""
        with self._named():
            super().flush()

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OSError(error.errno, error.strerror, self._title) from None


def run_program(main: Callable[[], int]) -> int:
    """Runs `main` and writes what is left to be written; its status, or one for an output that takes no more.

    A reader that is gone (`| head -1`) ends the program quietly, with the status that a shell shows for SIGPIPE.
    """
    try:
        try:
            return main()
        finally:
            sys.stdout.flush()
    except OSError as error:
        if error.filename not in OUTPUTS:
            raise
        discard_output()
        if isinstance(error, BrokenPipeError):
            return 128 + signal.SIGPIPE
        say(f"{error.strerror} for {error.filename} (where it is sent to)")
        return 2


def discard_output() -> None:
    """Redirects broken outputs to /dev/null, because Python would write to them again at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def say(sentence: object) -> None:
    """Writes a last sentence to standard error in one line, whatever it quotes and whatever the stream has become."""
    line = f"motif_jax: {clean(sentence, LIMIT)}\n"
    with contextlib.suppress(OSError, ValueError):  # ValueError: it was closed
        encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
        sys.stderr.write(line.encode(encoding, "backslashreplace").decode(encoding))
        sys.stderr.flush()
