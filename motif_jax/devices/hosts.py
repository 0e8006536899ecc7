"""The hosts of one run: how they connect, and their votes before each update.

Several hosts run the same program at the same time, each with its own games and devices. They must run collective
operations in the same order, or all wait forever. So a host that fails reports it in the next vote.

A host that dies cannot report. JAX notices within `heartbeat_timeout_seconds` and ends the other processes; SLURM ends
them at once (`srun --kill-on-bad-exit`). The same command on all hosts goes on from the last checkpoint.
"""

from __future__ import annotations

import atexit
import contextlib
import enum
import functools
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, NamedTuple

import jax
import numpy as np

from motif_jax.devices.mesh import from_every_host
from motif_jax.devices.parameters import sum_of_arrays
from motif_jax.structs import Stopped, UserError
from motif_jax.system.meeting import Meeting, split_address

START_TIMEOUT_S = 300.0  # for all hosts to connect
POLL_INTERVAL_S = 0.5  # for signals, while hosts connect
LEAVE_TIMEOUT_S = 3600  # for all hosts to end: the first one saves meanwhile
EPISODES_PER_HOST = 2**40
SAVE_EVERY_S = 60.0  # with several hosts, as any of them may be lost


def start_hosts(meeting: Meeting | None, stop_asked: Callable[[], str]) -> None:
    """Joins the other hosts, if any, before JAX is used. `stop_asked`: the name of the signal that asked to stop."""
    if meeting is None or jax.distributed.is_initialized():
        return
    check_known(meeting)
    local = bind_address(meeting) if meeting.process_id == 0 else None
    jax.config.update("jax_enable_preemption_service", False)  # it would replace our handler of SIGTERM
    errors: list[Exception] = []

    def join() -> None:
        try:
            jax.distributed.initialize(
                meeting.address,
                meeting.num_processes,
                meeting.process_id,
                None if meeting.device is None else [meeting.device],
                cluster_detection_method="deactivate",  # JAX would read SLURM's variables again
                initialization_timeout=int(START_TIMEOUT_S) + 60,
                shutdown_timeout_seconds=LEAVE_TIMEOUT_S,
                coordinator_bind_address=local,
            )
            # Hosts connect in their first collective operation, in which JAX gives up on CPUs if another host is half a
            # minute late. Here all of them come from the meeting; later, the first one may read a large checkpoint.
            from_every_host(np.zeros(1, np.int32))
        except Exception as error:  # raised below
            errors.append(error)

    # In a thread, because JAX ignores signals while it waits, and aborts the process at its timeout.
    joining = threading.Thread(target=join, name="joining", daemon=True)
    joining.start()
    deadline = time.monotonic() + START_TIMEOUT_S
    while joining.is_alive() and time.monotonic() < deadline and not stop_asked():
        joining.join(POLL_INTERVAL_S)
    if joining.is_alive():
        if name := stop_asked():
            raise Stopped(f"stopped by {name} before all hosts had met; give the same command again to go on")
        raise UserError(
            f"the {meeting.num_processes} hosts have not all met at {meeting.address!r} in {START_TIMEOUT_S:.0f} "
            "seconds: each must run the same command with its own number, and reach process 0 there "
            "(--config.distributed.coordinator, .num_processes, .process_id)"
        )
    if errors:
        reason = (str(errors[0]).splitlines() or [""])[0]
        raise UserError(f"the hosts cannot meet at {meeting.address!r}: {reason} ({meeting.flag})")


def check_known(meeting: Meeting) -> None:
    """Raises UserError if this machine cannot resolve the host's name."""
    try:
        socket.getaddrinfo(meeting.host, meeting.port)
    except (socket.gaierror, UnicodeError) as error:  # UnicodeError: a part of the name is empty or too long
        reason = getattr(error, "strerror", str(error))
        if getattr(error, "errno", None) != socket.EAI_AGAIN:  # EAI_AGAIN: the name server does not answer
            raise UserError(f"the host {meeting.host!r} is not known here: {reason} ({meeting.flag})") from None


def bind_address(meeting: Meeting) -> str | None:
    """The address at which process 0 listens; None: the port of the meeting on all addresses of this machine.

    Raises UserError if it cannot listen there, because JAX would end the process with a segmentation fault.
    """
    name = "JAX_COORDINATOR_BIND_ADDRESS"
    is_local = meeting.host in ("localhost", "::1") or meeting.host.startswith("127.")
    local = meeting.address if is_local else os.environ.get(name, "")
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


class Ballot(NamedTuple):
    """What a host says before each update; or what all say together, of which its methods are the sums and maxima."""

    vote: Vote = Vote.GO_ON
    next_episode: int = 0  # the number of the next episode that its games begin
    episodes: int = 0  # that have ended in its games
    steps: int = 0  # of its games, in its share of the batch

    def joined(self, other: Ballot) -> Ballot:
        """Both together: the stronger vote, the later episode, all episodes, and all steps."""
        vote, next_episode = max(self.vote, other.vote), max(self.next_episode, other.next_episode)
        return Ballot(vote, next_episode, self.episodes + other.episodes, self.steps + other.steps)


READY = Ballot()


class Hosts(contextlib.AbstractContextManager["Hosts"]):
    """Keeps the hosts of a run in step; a context manager around all work that needs the other hosts."""

    def __init__(self) -> None:
        self.me, self.count = jax.process_index(), jax.process_count()
        self._over = False  # the last vote has taken place

    def __exit__(self, _: type | None, error: BaseException | None, __: TracebackType | None) -> None:
        if self.count == 1:
            return
        if error is not None and not isinstance(error, Exception):  # a signal: the others are not waited for
            atexit.register(leave_at_once, 128 + (error.args[0] if error.args else signal.SIGINT))
            return
        if error is not None and not self._over:
            from_every_host(np.array(Ballot(Vote.FAILED), np.int32))
        jax.distributed.shutdown()  # waits until all hosts call it; afterwards they are independent

    @property
    def first_episode(self) -> int:
        """The number of this host's first episode: hosts play different games."""
        return self.me * EPISODES_PER_HOST

    def agree(self, own: Ballot = READY) -> Ballot:
        """What all hosts say together; one host alone agrees with itself.

        If its vote is not GO_ON, this was the last one. Raises UserError if another host has failed.
        """
        if self.count == 1:
            return own
        rows = from_every_host(np.array(own, np.int32)).tolist()
        ballots = [Ballot(Vote(vote), *numbers) for vote, *numbers in rows]
        said = functools.reduce(Ballot.joined, ballots)
        self._over = said.vote != Vote.GO_ON
        if said.vote == Vote.FAILED:
            first = [ballot.vote for ballot in ballots].index(Vote.FAILED)
            raise UserError(f"host {first} of {self.count} has failed; its own output says why (--config.distributed)")
        return said

    def check_same(self, what: str, tree: Any) -> None:
        """Raises UserError, on all hosts, if their arrays differ; `what`: the arrays, for the message."""
        if self.count == 1:
            return
        sums = from_every_host(np.frombuffer(bytes.fromhex(sum_of_arrays(tree)), np.int32))  # [hosts, 8]
        if others := np.flatnonzero((sums != sums[0]).any(1)).tolist():
            raise UserError(
                f"host {others[0]} has {what} that differs from that of host 0: all hosts must see the same files; "
                "give the same command again on all hosts (--config.distributed)"
            )

    def save_every_s(self, asked: float) -> float:
        """Seconds between checkpoints, of which the config asks for `asked`."""
        return asked if self.count == 1 else min(asked, SAVE_EVERY_S)


def leave_at_once(status: int) -> None:
    """Ends the process with `status`, without JAX's own shutdown, which waits for the other hosts."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # it is closed
            stream.flush()
    os._exit(status)
