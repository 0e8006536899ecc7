"""JAX's coordination service, through which the hosts of a run find each other, and the detection of lost hosts.

JAX ends a process with a stack trace, which Python cannot prevent, when another host is lost. Two things avoid that:

- JAX's own heartbeats have a timeout that is longer than any run, and a `Watch` sends heartbeats instead. A heartbeat
  is a counter in the service's key-value store. A host is lost if its counter has not changed in `SILENT_BEATS` looks
  in a row, one look per beat: its process was killed, is stopped, or cannot be reached. Looks are counted instead of
  seconds, so a process that was itself stopped, or runs on a slow machine, does not report lost hosts.
- The service runs on host 0. Other hosts connect to it through a `Relay` in their own process, which keeps the client's
  connection open if host 0 is gone.

What JAX offers itself does not suffice. Tried with JAX 0.10.2 and two processes on CPUs, of which one got SIGKILL or
SIGSTOP, while the other one waited idly or in an all-gather, with `heartbeat_timeout_seconds=10`:

- `jax_enable_recoverability`: host 0 survived the loss of host 1 in all cases. Host 1 never survived the loss of host
  0: it was aborted 0.2 seconds after SIGKILL ("Failed to send RPC to coordination service", from PollForError) and 8
  seconds after SIGSTOP ("DEADLINE_EXCEEDED", from Heartbeat).
- `missed_heartbeat_callback` of the client, which only `jax._src` can set: a callback in Python ends the process, too
  (`std::bad_cast`).
- `multihost_utils.live_devices` waits for all hosts, like a barrier, and knows what JAX's heartbeats know. With
  heartbeats that detect anything, the loss of host 0 ends the process as above.

So `jax._src` is imported here, and nowhere else, for the client of the key-value store.
"""

from __future__ import annotations

import contextlib
import functools
import socket
import threading
from collections.abc import Callable, Iterable, Mapping

from jax._src import distributed

BEAT_S = 1.0  # seconds between two heartbeats, and between two looks at those of the others
SILENT_BEATS = 30  # looks in a row without a new heartbeat, after which a host is lost
NEVER_S = 10**7  # for JAX's own timeouts, at which it aborts the process
_KEY = "motif_jax/beats/"


def host() -> tuple[int, int]:
    """The number of this host, and the number of hosts. Does not use devices, which would wait for other hosts."""
    return distributed.global_state.process_id, distributed.global_state.num_processes


@functools.cache
def wait_for_every_host() -> None:
    """Waits, at the first call, until all hosts call this; call it before collective operations.

    Hosts connect in their first collective operation, and on CPUs JAX gives up if another host is half a minute late.
    """
    client = distributed.global_state.client
    assert client is not None
    client.wait_at_barrier("motif_jax/first", NEVER_S * 100)  # milliseconds, in 31 bits


class HostSilence:
    """Counts, for each other host, looks in a row without a new heartbeat; without threads or clocks."""

    def __init__(self, others: Iterable[int]):
        """`others`: the numbers of the other hosts."""
        self._seen = dict.fromkeys(others, "")
        self._silent = dict.fromkeys(others, 0)
        self._waited = 0  # beats since the last finished look

    def look(self, beats: Mapping[int, str]) -> None:
        """Counts one look at the heartbeats of all hosts."""
        self._waited = 0
        for host, before in self._seen.items():
            beat = beats.get(host, before)
            self._silent[host] = 0 if beat != before else self._silent[host] + 1
            self._seen[host] = beat

    def wait(self) -> None:
        """Counts one beat of this process, in which a look may have finished."""
        self._waited += 1

    def lost(self) -> list[int]:
        """The lost hosts; [0] if host 0 is among them, because heartbeats of other hosts arrive through it."""
        unanswered = 0 in self._seen and self._waited >= SILENT_BEATS
        lost = [host for host, looks in self._silent.items() if looks >= SILENT_BEATS]
        return [0] if unanswered or 0 in lost else lost


class Watch:
    """Sends heartbeats of this host, and calls `on_lost` once, in a separate thread, when other hosts are silent."""

    def __init__(self, on_lost: Callable[[list[int]], None]):
        """Starts the two threads that send and check heartbeats.

        `on_lost`: called with the numbers of the lost hosts; with [0] alone if host 0 is among them.
        """
        self._me, count = host()
        self._on_lost = on_lost
        self._silence = HostSilence({*range(count)} - {self._me})
        self._ended = threading.Event()
        self._looks = 0
        for run in (self._beat, self._judge):
            threading.Thread(target=run, name="heartbeats", daemon=True).start()

    def stop(self) -> None:
        """Ends both threads; call it before the other hosts end in the normal way."""
        self._ended.set()

    def wait_for_verdict(self) -> None:
        """Waits, after a connection to another host broke, until it is known whether a host is lost.

        Returns if no host is lost. Otherwise it does not return, because `on_lost` ends the process.
        """
        before = self._looks
        while self._looks < before + SILENT_BEATS + 5:
            if self._ended.wait(BEAT_S):
                threading.Event().wait()  # until `on_lost` has ended the process

    def _beat(self) -> None:
        """Sends and reads heartbeats; a separate thread judges, because a call does not return if host 0 is stopped."""
        client, number = distributed.global_state.client, 0
        assert client is not None
        while not self._ended.wait(BEAT_S):
            number += 1
            try:
                client.key_value_set(f"{_KEY}{self._me}", str(number), allow_overwrite=True)
                found = dict(client.key_value_dir_get(_KEY))
            except (RuntimeError, ValueError):  # host 0 is gone, and with it the heartbeats of all hosts
                found = {}
            self._silence.look({int(key.removeprefix(_KEY)): beat for key, beat in found.items()})
            self._looks += 1

    def _judge(self) -> None:
        while not self._ended.wait(BEAT_S):
            self._silence.wait()
            lost = self._silence.lost()
            if lost:
                self._ended.set()
                self._on_lost(lost)


class Relay:
    """Passes bytes between a client in this process and a server; the client does not notice when the server dies."""

    def __init__(self, host: str, port: int):
        """Listens on a free port of the loopback interface; `host` and `port` are the server's."""
        self._server = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._held: list[socket.socket] = []  # referenced here, because Python closes a socket without references
        threading.Thread(target=self._accept, name="relay", daemon=True).start()

    @property
    def address(self) -> str:
        """The address of the relay itself, `host:port`, for the client."""
        name, port = self._listener.getsockname()
        return f"{name}:{port}"

    def _accept(self) -> None:
        while True:
            near, _ = self._listener.accept()
            threading.Thread(target=self._serve, args=(near,), name="relay", daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        try:
            far = socket.create_connection(self._server)
        except OSError:  # the server has not started yet; the client will try again
            near.close()
            return
        self._held.append(near)
        for end in (near, far):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=self._answer, args=(far, near), name="relay", daemon=True).start()
        _pass_on(near, far)
        with contextlib.suppress(OSError):  # already disconnected
            far.shutdown(socket.SHUT_RDWR)

    def _answer(self, far: socket.socket, near: socket.socket) -> None:
        """Passes the server's bytes on; if none came, it was not the service yet, and the client must try again.

        Host 0 opens the port for a moment, to see whether it is free, before the service does.
        """
        if not _pass_on(far, near):
            self._held.remove(near)
            with contextlib.suppress(OSError):
                near.shutdown(socket.SHUT_RDWR)


def _pass_on(source: socket.socket, target: socket.socket) -> bool:
    """Passes bytes on until either end is gone; returns whether there were any."""
    passed = False
    with contextlib.suppress(OSError):
        while data := source.recv(2**16):
            passed = True
            target.sendall(data)
    return passed
