"""Start and end of the program: standard streams, signals before anything is loaded, the last message, the exit status.

This file imports nothing that takes long, because its part must be done before the rest is imported.
"""

from __future__ import annotations

import contextlib
import io
import os
import runpy
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from motif_jax.console import clean

OUTPUTS = ("standard output", "standard error")  # their names in errors
STOPPED = "stopped; give the same command again to go on"
LIMIT = 2000  # characters of the last message


def command() -> None:
    """The console script `motif-jax`: the same as `python -m motif_jax.launch`."""
    runpy.run_module("motif_jax.launch", run_name="__main__")


def begin() -> None:
    """Sets up streams and signals. Call it before other imports, and only in a process that runs this program alone."""
    open_streams()
    for number in (signal.SIGINT, signal.SIGTERM):  # until launch.py handles them
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, end_now)
    sys.unraisablehook = report_ignored


def end_now(number: int, _: FrameType | None = None) -> None:
    """Ends the process: the handler of signals until launch.py sets its own. There is nothing to clean up yet.

    It raises no exception, because the imports that run at this time would turn it into a traceback.
    """
    say(STOPPED)
    os._exit(128 + number)


def open_streams() -> None:
    """Makes sure that descriptors 0 to 2 are open, and that any text can be written to 1 and 2.

    If one is closed, the next file that is opened gets its number, and messages are written into a data file.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # gets the lowest free number: this one
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115  (never closed)
    for name, title in zip(("stdout", "stderr"), OUTPUTS, strict=True):
        stream = Output(getattr(sys, name), title)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def report_ignored(ignored: Any) -> None:
    """Prints an exception that cannot be raised, for `sys.unraisablehook`; leaves out those of tensorstore's threads.

    When a disk is full, these threads raise "Event loop is closed" hundreds of times. The failure itself is raised
    where the write was requested.
    """
    if threading.current_thread() is threading.main_thread() or str(ignored.exc_value) != "Event loop is closed":
        sys.__unraisablehook__(ignored)


class Output(io.TextIOWrapper):
    """A standard stream that can write any text, and whose errors have its name as their `filename`."""

    def __init__(self, stream: io.TextIOWrapper, title: str):
        """Replaces `stream`; `title` is its name in errors."""
        lines, through, encoding = stream.line_buffering, stream.write_through, stream.encoding
        super().__init__(stream.detach(), encoding, "backslashreplace", line_buffering=lines, write_through=through)
        self._title = title

    def write(self, text: str) -> int:
        """Writes text; returns the number of characters."""
        with self._named():
            return super().write(text)

    def flush(self) -> None:
        """Writes what is buffered."""
        with self._named():
            super().flush()

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OSError(error.errno, error.strerror, self._title) from None


def run_program(main: Callable[[], int]) -> int:
    """Runs `main` and flushes standard output; returns the exit status.

    It is that of `main`, unless writing the output fails. If its reader is gone (`| head -1`), the program ends without
    a message, with the status that a shell shows for SIGPIPE; on other errors (a full disk), with a message and 2.
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
        say(f"{error.strerror} for {error.filename} (redirect it to another place)")
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
    """Writes the last message to standard error as one safe line; does nothing if that stream is broken or closed."""
    line = f"motif_jax: {clean(sentence, LIMIT)}\n"
    # ValueError: the stream is closed. RuntimeError: a signal came while the stream was written to.
    with contextlib.suppress(OSError, ValueError, RuntimeError):
        encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
        sys.stderr.write(line.encode(encoding, "backslashreplace").decode(encoding))
        sys.stderr.flush()
