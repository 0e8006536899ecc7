"""Votes of the hosts of a training run before each update, so that all stop at the same one; signals that ask to stop.

Hosts must run collective operations in the same order, or all wait for ever. So a host that fails reports it in the
next vote; an error inside of an update, which all hosts run together, need not be reported, as it occurs on all hosts.

A host that dies reports nothing, and the main threads of the others may wait for it for ever, inside of XLA. A thread
on each of them notices (see liveness.py), saves what was learnt, prints one sentence, and ends the process with status
LOST.
"""

from __future__ import annotations

import atexit
import contextlib
import enum
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType, TracebackType

import numpy as np

from motif_jax.devices import liveness
from motif_jax.devices.distributed import from_every_host, host, leave_hosts, watch_hosts
from motif_jax.structs import Interrupted, UserError
from motif_jax.system.files import checkpoint_steps
from motif_jax.system.startup import say

LOST = os.EX_TEMPFAIL  # exit status when another host was lost, 75: the same command may well succeed
SAVE_TIMEOUT_S = 120.0  # on a busy machine; what waits for the host that is lost never ends


class Vote(enum.IntEnum):
    """What a host wants to do next; the highest vote of all hosts decides."""

    GO_ON = 0
    END = 1  # it was trained for long enough
    STOP = 2  # it was asked to, by a signal
    FAILED = 3


class Hosts:
    """Keeps the hosts of a run in step; use as a context manager around all that needs the others, once they met."""

    def __init__(self) -> None:
        """Starts to watch the other hosts, if there are any."""
        self.me, self.count = host()
        self.save: Callable[[], str] | None = None  # saves what this host has learnt, and returns a description
        self._over = False  # the last vote has taken place
        self._watch = watch_hosts(self._end_without) if self.count > 1 else None

    def __enter__(self) -> Hosts:
        return self

    def __exit__(self, _: type | None, error: BaseException | None, __: TracebackType | None) -> None:
        if self._watch is None:
            return
        if error is not None and not isinstance(error, Exception):  # by the user's vote: the others will notice
            number = error.args[0] if error.args else signal.SIGINT
            atexit.register(leave_at_once, 128 + number)  # before JAX waits for the others
            self._watch.stop()
            return
        if error is not None and not self._over:
            try:
                self._gather(Vote.FAILED, (0, 0))
            except (RuntimeError, ValueError):  # of the collective: a host is gone, or the way to it
                self._watch.wait_for_verdict()
                self._end_without([])
        leave_hosts()
        self._watch.stop()

    def agree(self, vote: Vote, numbers: Iterable[int] = (0, 0)) -> tuple[Vote, np.ndarray]:
        """The strongest vote of all hosts, and the numbers of the others. [hosts - 1, 2]

        If the result is not GO_ON, this was the last vote. Raises UserError if another host has failed.
        """
        votes, all_numbers = self._gather(vote, numbers)
        strongest = Vote(votes.max())
        self._over = strongest != Vote.GO_ON
        if strongest == Vote.FAILED:
            raise UserError(
                f"host {votes.argmax()} of {self.count} has failed; what it wrote itself says why "
                "(--config.distributed)"
            )
        return strongest, np.delete(all_numbers, self.me, 0)

    def _gather(self, vote: Vote, numbers: Iterable[int]) -> tuple[np.ndarray, np.ndarray]:
        found = from_every_host(np.array([vote, *numbers], np.int32))
        return found[:, 0], found[:, 1:]

    def _end_without(self, lost: list[int]) -> None:
        """Ends the process, whatever its main thread is waiting for."""
        saver = min({*range(self.count)} - {*lost})
        if self.save is None:
            saved = "nothing was learnt since it started"
        elif self.me == saver:
            saved = in_time(self.save)
        else:
            saved = f"host {saver} saves what was learnt"
        seconds = liveness.BEAT_S * liveness.SILENT_BEATS
        names = ", ".join(map(str, lost))
        what = f"host {names} of {self.count} was lost, without a sign of life for {seconds:.0f} seconds"
        if not lost:
            what = "the connection to another host broke"
        say(f"{what}; {saved}; end what is left of the run, and give the same command again on all hosts to go on")
        leave_at_once(LOST)


class StopAsked:
    """Remembers that a signal asked to stop, so that there is time to save; each time, a sentence says what happens.

    A second SIGINT waits if something is not saved yet; otherwise it stops at once, as the third one always does.
    SIGTERM may come more than once: SLURM sends it before the time limit, at it, and if another job preempts this one.
    """

    def __init__(self) -> None:
        self.asked = ""  # name of the signal
        self._unsaved: Callable[[], str] = str  # says what would be lost now; "": nothing
        self._warned = False

    def watch(self, checkpoints: Path, done: Callable[[], int], unit: str) -> None:
        """Tells what would be lost: what was `done` after the last checkpoint in a directory, counted in `unit`."""

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
            say(f"{self.asked}: stopping as soon as what was learnt is saved")
        elif number == signal.SIGINT:
            if not self._warned and (unsaved := self._unsaved()):
                self._warned = True
                say(f"waiting until {unsaved} are saved; one more Ctrl-C ends the program without them")
                return
            for other in self._before:  # a checkpoint that is being written must become complete
                signal.signal(other, signal.SIG_IGN)
            raise Interrupted(number)


def in_time(save: Callable[[], str]) -> str:
    """What `save` returns, or a sentence that says why it failed or that it took more than SAVE_TIMEOUT_S."""
    failed = "what was learnt since the last checkpoint could not be saved"
    told = [f"{failed} within {SAVE_TIMEOUT_S:.0f} seconds"]

    def run() -> None:
        try:
            told[0] = save()
        except Exception as error:  # whatever it is, the process ends with it
            told[0] = f"{failed}: {(str(error).splitlines() or [''])[0]}"

    saving = threading.Thread(target=run, name="saving", daemon=True)
    saving.start()
    saving.join(SAVE_TIMEOUT_S)
    return told[0]


def leave_at_once(status: int) -> None:
    """Ends the process with `status`, without JAX's own shutdown, which waits for the other hosts."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # it is closed
            stream.flush()
    os._exit(status)
