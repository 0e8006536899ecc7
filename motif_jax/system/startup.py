"""Start and end of the program: standard streams, early signals, the last message, the exit status.

This module must run before slow imports, so it has only fast ones.
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

OUTPUTS = ("standard output", "standard error")  # names of the streams in errors
STOPPED = "stopped; run the same command again to resume"
LIMIT = 2000  # characters of the last message


def command() -> None:
    """The console script `motif-jax`: the same as `python -m motif_jax.launch`."""
    runpy.run_module("motif_jax.launch", run_name="__main__")


def set_up_process() -> None:
    """Sets up streams and signals. Call it before other imports, and only in this program's own process."""
    open_streams()
    for number in (signal.SIGINT, signal.SIGTERM):  # until launch.py handles them
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, end_now)
    sys.unraisablehook = report_ignored


def end_now(number: int, _: FrameType | None = None) -> None:
    """Ends the process: the signal handler until launch.py sets its own. There is nothing to clean up yet.

    An exception would become a traceback of the imports that run at this time.
    """
    say(STOPPED)
    os._exit(128 + number)


def open_streams() -> None:
    """Makes sure that descriptors 0 to 2 are open, and that 1 and 2 can write any text.

    A closed descriptor's number would go to the next opened file, and messages would be written into a data file.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # gets the lowest free number, which is `number`
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115  (never closed)
    for name, title in zip(("stdout", "stderr"), OUTPUTS, strict=True):
        stream = Output(getattr(sys, name), title)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def report_ignored(ignored: Any) -> None:
    """The `sys.unraisablehook`: prints an exception that cannot be raised, except those of tensorstore's threads.

    On a full disk these threads raise "Event loop is closed" hundreds of times, while the caller of the write gets the
    actual error.
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
        with self._named():
            return super().write(text)

    def flush(self) -> None:
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

    This is the status of `main`, unless writing the output fails. If the reader has ended (`| head -1`), it is the
    status of SIGPIPE, without a message; for other errors, such as a full disk, it is 2, with a message.
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
    """Redirects broken outputs to /dev/null: Python would write to them again at exit."""
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
    # ValueError: the stream is closed. RuntimeError: a signal interrupted a write to it.
    with contextlib.suppress(OSError, ValueError, RuntimeError):
        encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
        sys.stderr.write(line.encode(encoding, "backslashreplace").decode(encoding))
        sys.stderr.flush()
