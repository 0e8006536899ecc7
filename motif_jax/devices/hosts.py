"""The hosts of one run: their meeting, their votes before each update, and the loss of a host.

Several hosts run the same program at the same time, each with its own games and devices. They must run collective
operations in the same order, or all wait forever. So a host that fails reports it in the next vote. An error inside an
update occurs on all hosts, which run it together, and is not reported.

A host that dies cannot report, and the main threads of the others may wait for it forever, inside XLA. A thread on each
of them notices (see coordination.py), saves the state, prints one sentence, and ends the process with status LOST.
"""

from __future__ import annotations

import atexit
import contextlib
import enum
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable
from types import TracebackType

import jax
import numpy as np

from motif_jax.devices import coordination
from motif_jax.devices.host_arrays import from_every_host
from motif_jax.structs import Stopped, UserError
from motif_jax.system.meeting import Meeting, split_address
from motif_jax.system.startup import say

START_TIMEOUT_S = 300.0  # for all hosts to meet
LOOK_EVERY_S = 0.5  # for signals, during the meeting
LOST = os.EX_TEMPFAIL  # exit status when another host was lost, 75: the same command may succeed
SAVE_TIMEOUT_S = 120.0  # enough on a busy machine; a save that waits for the lost host never ends


def start_hosts(meeting: Meeting | None, stop_asked: Callable[[], str]) -> None:
    """Joins the other hosts of this run; call it before JAX is used for anything else.

    If `meeting` is None, this process works alone. `stop_asked`: returns the signal that has asked it to stop, or "".
    """
    if meeting is None or jax.distributed.is_initialized():
        return
    check_known(meeting)
    local = bind_address(meeting) if meeting.process_id == 0 else None
    address = coordination.Relay(meeting.host, meeting.port).address if meeting.process_id else meeting.address
    jax.config.update("jax_enable_preemption_service", False)  # it would replace our handler of SIGTERM
    failed: list[Exception] = []

    def join() -> None:
        try:
            jax.distributed.initialize(
                address,
                meeting.num_processes,
                meeting.process_id,
                None if meeting.device is None else [meeting.device],
                cluster_detection_method="deactivate",  # JAX would read SLURM's variables again
                initialization_timeout=int(START_TIMEOUT_S) + 60,
                heartbeat_timeout_seconds=coordination.NEVER_S,
                shutdown_timeout_seconds=coordination.NEVER_S,
                coordinator_bind_address=local,
            )
        except Exception as error:  # raised below
            failed.append(error)

    # In a thread, because JAX ignores signals while it waits, and aborts the process at its timeout.
    joining = threading.Thread(target=join, name="joining", daemon=True)
    joining.start()
    deadline = time.monotonic() + START_TIMEOUT_S
    while joining.is_alive() and time.monotonic() < deadline and not stop_asked():
        joining.join(LOOK_EVERY_S)
    if joining.is_alive():
        if name := stop_asked():
            raise Stopped(f"stopped by {name} before all hosts had met; give the same command again to go on")
        raise UserError(
            f"the {meeting.num_processes} hosts have not all met at {meeting.address!r} in {START_TIMEOUT_S:.0f} "
            "seconds: each must run the same command with its own number, and reach process 0 there "
            "(--config.distributed.coordinator, .num_processes, .process_id)"
        )
    if failed:
        reason = (str(failed[0]).splitlines() or [""])[0]
        raise UserError(f"the hosts cannot meet at {meeting.address!r}: {reason} ({meeting.flag})")


def check_known(meeting: Meeting) -> None:
    """Raises UserError if this machine cannot resolve the name of the host."""
    try:
        socket.getaddrinfo(meeting.host, meeting.port)
    except socket.gaierror as error:
        if error.errno != socket.EAI_AGAIN:  # EAI_AGAIN: the name server does not answer
            raise UserError(f"the host {meeting.host!r} is not known here: {error.strerror} ({meeting.flag})") from None


def bind_address(meeting: Meeting) -> str | None:
    """The address at which process 0 listens; None: the port of the meeting on all addresses of this machine.

    Raises UserError if it cannot listen there, because JAX would end the process with a segmentation fault.
    """
    name = "JAX_COORDINATOR_BIND_ADDRESS"
    local = meeting.address if meeting.is_local else os.environ.get(name, "")
    host, port = split_address(local, name) if local else ("", meeting.port)
    both = not host and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both or ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family, dualstack_ipv6=both).close()
    except OSError as error:
        raise UserError(
            f"the hosts cannot meet at {meeting.address!r}, as process 0 cannot listen on port {port}: "
            f"{os.strerror(error.errno or 0)} ({meeting.flag})"
        ) from None
    return local or None


class Vote(enum.IntEnum):
    """A host's vote on its next step; the highest vote of all hosts decides."""

    GO_ON = 0
    END = 1  # training is complete
    STOP = 2  # a signal asked for it
    FAILED = 3


class Hosts:
    """Keeps the hosts of a run in step; a context manager around all work that needs the other hosts."""

    def __init__(self) -> None:
        """Starts to watch the other hosts, if there are any."""
        self.me, self.count = coordination.host()
        self.save: Callable[[], str] | None = None  # saves this host's state, and returns a sentence about it
        self._over = False  # the last vote has taken place
        self._watch = coordination.Watch(self._end_without) if self.count > 1 else None

    def __enter__(self) -> Hosts:
        return self

    def __exit__(self, _: type | None, error: BaseException | None, __: TracebackType | None) -> None:
        if self._watch is None:
            return
        if error is not None and not isinstance(error, Exception):  # an exit by a signal: the others will notice
            number = error.args[0] if error.args else signal.SIGINT
            atexit.register(leave_at_once, 128 + number)  # before JAX waits for the others
            self._watch.stop()
            return
        if error is not None and not self._over:
            try:
                self._gather(Vote.FAILED, (0, 0, 0))
            except (RuntimeError, ValueError):  # of the collective operation: a host is lost, or the connection
                self._watch.wait_for_verdict()
                self._end_without([])
        jax.distributed.shutdown()  # waits until all hosts call it; afterwards they are independent
        self._watch.stop()

    def agree(self, vote: Vote, numbers: Iterable[int] = (0, 0, 0)) -> tuple[Vote, np.ndarray]:
        """The strongest vote of all hosts, and the three numbers of the others. [hosts - 1, 3]

        If the result is not GO_ON, this was the last vote. Raises UserError if another host has failed.
        """
        votes, all_numbers = self._gather(vote, numbers)
        strongest = Vote(votes.max())
        self._over = strongest != Vote.GO_ON
        if strongest == Vote.FAILED:
            raise UserError(
                f"host {votes.argmax()} of {self.count} has failed; its own output says why (--config.distributed)"
            )
        return strongest, np.delete(all_numbers, self.me, 0)

    def _gather(self, vote: Vote, numbers: Iterable[int]) -> tuple[np.ndarray, np.ndarray]:
        found = from_every_host(np.array([vote, *numbers], np.int32))
        return found[:, 0], found[:, 1:]

    def _end_without(self, lost: list[int]) -> None:
        """Saves the state and ends the process, even if its main thread waits."""
        saver = min({*range(self.count)} - {*lost})
        if self.save is None:
            saved = "nothing was learnt since it started"
        elif self.me == saver:
            saved = in_time(self.save)
        else:
            saved = f"host {saver} saves what was learnt"
        seconds = coordination.BEAT_S * coordination.SILENT_BEATS
        names = ", ".join(map(str, lost))
        what = f"host {names} of {self.count} was lost, without a sign of life for {seconds:.0f} seconds"
        if not lost:
            what = "the connection to another host broke"
        advice = "end the remaining processes of the run, and give the same command again on all hosts to go on"
        say(f"{what}; {saved}; {advice}")
        leave_at_once(LOST)


def in_time(save: Callable[[], str]) -> str:
    """The result of `save`, or a sentence that it failed or took more than SAVE_TIMEOUT_S."""
    failed = "what was learnt since the last checkpoint could not be saved"
    result = [f"{failed} within {SAVE_TIMEOUT_S:.0f} seconds"]

    def run() -> None:
        try:
            result[0] = save()
        except Exception as error:  # the process ends after any error
            result[0] = f"{failed}: {(str(error).splitlines() or [''])[0]}"

    saving = threading.Thread(target=run, name="saving", daemon=True)
    saving.start()
    saving.join(SAVE_TIMEOUT_S)
    return result[0]


def leave_at_once(status: int) -> None:
    """Ends the process with `status`, without JAX's own shutdown, which waits for the other hosts."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # it is closed
            stream.flush()
    os._exit(status)
