"""Start and end of the program: standard streams, early signals, the last message, the exit status.

This module must run before slow imports, so it has only fast ones.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import runpy
import signal
import sys
import threading
from collections.abc import Callable, Mapping, MutableMapping
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from motif_jax.console import OUTPUTS, clean, write
from motif_jax.files import checkpoint_steps
from motif_jax.structs import Interrupted

STOPPED = "stopped; run the same command again to resume"
LIMIT = 2000  # characters of the last message


def command() -> None:
    """The console script `motif-jax`: the same as `python -m motif_jax.launch`, which finds the user's modules here."""
    sys.path.insert(0, "")
    runpy.run_module("motif_jax.launch", run_name="__main__")


def set_up_process() -> None:
    """Sets up streams and signals. Call it before other imports, and only in this program's own process."""
    open_streams()
    for number in (signal.SIGINT, signal.SIGTERM):  # until launch.py handles them
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, end_now)
    sys.unraisablehook = report_ignored


def end_now(number: int, _: FrameType | None = None) -> None:
    """The signal handler until launch.py sets its own: an exception would become a traceback of imports at work."""
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
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def report_ignored(ignored: Any) -> None:
    """The `sys.unraisablehook`: prints an exception that cannot be raised, except those of tensorstore's threads.

    On a full disk these threads raise "Event loop is closed" hundreds of times, while the caller of the write gets the
    actual error.
    """
    if threading.current_thread() is threading.main_thread() or str(ignored.exc_value) != "Event loop is closed":
        sys.__unraisablehook__(ignored)


def run_program(main: Callable[[], int]) -> int:
    """Runs `main` and flushes standard output; returns the exit status.

    This is the status of `main`, unless writing the output fails. If the reader has ended (`| head -1`), it is the
    status of SIGPIPE, without a message; for other errors, such as a full disk, it is 2, with a message.
    """
    try:
        try:
            return main()
        finally:
            write("")  # flushes
    except OSError as error:
        if error.filename not in OUTPUTS:
            raise
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError:  # Python would write to it again at exit
                os.dup2(nowhere, stream.fileno())
        if isinstance(error, BrokenPipeError):
            return 128 + signal.SIGPIPE
        say(f"{error.strerror} for {error.filename} (redirect it to another place)")
        return 2


def say(sentence: object) -> None:
    """Writes the last message to standard error as one safe line; does nothing if that stream is broken or closed."""
    # ValueError: the stream is closed. RuntimeError: a signal interrupted a write to it.
    with contextlib.suppress(OSError, ValueError, RuntimeError):
        print(f"motif_jax: {clean(sentence, LIMIT)}", file=sys.stderr, flush=True)


# ---- before JAX is loaded

CPU_DEVICES = "JAX_NUM_CPU_DEVICES"
MAX_BYTES = 2**30
LEAST_SECONDS = 0.5  # programs that compile faster are not cached


def divide_cpu(devices: int) -> None:
    """Makes JAX, if not loaded yet, divide the CPU into this number of devices, unless the environment has a number."""
    said = CPU_DEVICES in os.environ or "host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if devices > 1 and "jax" not in sys.modules and not said:
        os.environ[CPU_DEVICES] = str(devices)


def keep_compiled_programs(environment: MutableMapping[str, str]) -> None:
    """Sets the variables of JAX's compilation cache, unless the user has; call it before JAX is imported.

    Programs are kept in `$XDG_CACHE_HOME/motif_jax/compiled-<kind of machine>` (by default below `~/.cache`, and not if
    that is not writable), at most one gigabyte with LRU eviction.
    """
    directory = cache_directory(environment, "compiled")
    if "JAX_COMPILATION_CACHE_DIR" in environment or not directory.is_absolute():
        return
    with contextlib.suppress(OSError):
        directory.mkdir(parents=True, exist_ok=True)
    if os.access(directory, os.W_OK):
        environment["JAX_COMPILATION_CACHE_DIR"] = str(directory)
        environment.setdefault("JAX_COMPILATION_CACHE_MAX_SIZE", str(MAX_BYTES))
        environment.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", str(LEAST_SECONDS))


def cache_directory(environment: Mapping[str, str], kind: str) -> Path:
    """Where this kind of machine keeps what it has made for itself."""
    home = environment.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(home, "motif_jax", f"{kind}-{kind_of_machine()}")


def kind_of_machine() -> str:
    """A digest of the processor's features: machines with different ones may share a home directory."""
    with open("/proc/cpuinfo", errors="replace") as lines:
        features = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return hashlib.sha256(f"{platform.machine()} {features}".encode()).hexdigest()[:12]


# ---- signals that ask a training run to stop


class StopAsked:
    """Records that a signal asked to stop, so that training can save first; every signal prints a sentence.

    A second SIGINT stops at once if everything is saved; a third one always does. SIGTERM may come repeatedly: SLURM
    sends it before the time limit, at the limit, and on preemption.
    """

    def __init__(self) -> None:
        self.asked = ""  # name of the signal
        self._unsaved: Callable[[], str] = str  # describes the unsaved work; "": everything is saved
        self._warned = False

    def watch(self, checkpoints: Path, done: Callable[[], int], unit: str) -> None:
        """Defines unsaved work: the difference between `done` and the last checkpoint, counted in `unit`."""

        def unsaved() -> str:
            number = done() - max(checkpoint_steps(checkpoints), default=0)
            return f"{number:,} {unit}" if number > 0 else ""

        self._unsaved = unsaved

    def __enter__(self) -> StopAsked:
        self._before = {number: signal.signal(number, self._note) for number in (signal.SIGTERM, signal.SIGINT)}
        return self

    def __exit__(self, _: type | None, error: BaseException | None, __: TracebackType | None) -> None:
        if self.asked and error is not None and (lost := self._unsaved()):
            say(f"{lost} were not saved and are lost")
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, _: FrameType | None) -> None:
        if not self.asked:
            self.asked = signal.Signals(number).name
            say(f"{self.asked}: stopping as soon as the training state is saved")
        elif number == signal.SIGINT:
            if not self._warned and (unsaved := self._unsaved()):
                self._warned = True
                say(f"waiting until {unsaved} are saved; one more Ctrl-C ends the program without them")
                return
            for other in self._before:  # lets the writing of a checkpoint finish
                signal.signal(other, signal.SIG_IGN)
            raise Interrupted(number)
