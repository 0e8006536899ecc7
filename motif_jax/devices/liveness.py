"""Detects that another host of a run has died or hangs, before JAX notices and ends this process.

JAX ends the process with a stack trace, which Python cannot prevent, in two cases. Each is avoided here:

- The connection to the coordination service, which runs on host 0, closes. So JAX's client connects to a `Relay` in its
  own process, which keeps that connection open even if host 0 is gone.
- JAX's own heartbeats fail. So their timeout is set longer than any run, and a `Watch` sends heartbeats instead.

A heartbeat is a counter in the key-value store of the coordination service. A host is lost if its counter has not
changed in `SILENT_BEATS` looks in a row, one look per beat: its process was killed, is stopped, or cannot be reached.
Looks are counted instead of seconds. A process that is stopped, or waits for a busy machine, does not look meanwhile,
so it does not take the others for lost when it goes on, and on a machine on which all are slow all have more time.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

BEAT_S = 1.0  # seconds between two heartbeats, and between two looks at those of the others
SILENT_BEATS = 30  # a host is lost when so many looks in a row have shown no new heartbeat
_KEY = "motif_jax/beats/"


class Silence:
    """Counts how many looks in a row have shown no new heartbeat of each other host; without threads or clocks."""

    def __init__(self, others: Iterable[int]):
        """`others`: the numbers of the other hosts."""
        self._seen = dict.fromkeys(others, "")
        self._silent = dict.fromkeys(others, 0)
        self._waited = 0  # beats since a look began that has not ended

    def look(self, beats: Mapping[int, str]) -> None:
        """Counts one look at the heartbeats of all hosts."""
        self._waited = 0
        for host, before in self._seen.items():
            beat = beats.get(host, before)
            self._silent[host] = 0 if beat != before else self._silent[host] + 1
            self._seen[host] = beat

    def wait(self) -> None:
        """Counts one beat of this process in which a look may have ended."""
        self._waited += 1

    def lost(self) -> list[int]:
        """The hosts that are lost; [0] if host 0 is among them, as no heartbeats of others arrive without it."""
        unanswered = 0 in self._seen and self._waited >= SILENT_BEATS
        lost = [host for host, looks in self._silent.items() if looks >= SILENT_BEATS]
        return [0] if unanswered or 0 in lost else lost


class Watch:
    """Sends heartbeats of this host, and calls `on_lost` once, in a separate thread, when other hosts send none."""

    def __init__(self, client: Any, me: int, count: int, on_lost: Callable[[list[int]], None]):
        """Starts the two threads that send and check heartbeats.

        Args:
          client: the client of JAX's key-value store.
          me, count: the number of this host, and how many hosts there are.
          on_lost: is called with the numbers of the lost hosts; with [0] alone if host 0 is among them.
        """
        self._client, self._me, self._on_lost = client, me, on_lost
        self._silence = Silence([host for host in range(count) if host != me])
        self._ended = threading.Event()
        for run in (self._beat, self._judge):
            threading.Thread(target=run, name="liveness", daemon=True).start()

    def stop(self) -> None:
        """Ends both threads; call it before the other hosts end in the normal way."""
        self._ended.set()

    def wait_for_verdict(self) -> None:
        """Waits, after a connection to another host broke, until it is known whether a host is lost.

        Returns if none is. Does not return otherwise, because `on_lost` ends the process.
        """
        if self._ended.wait(BEAT_S * (SILENT_BEATS + 5)):
            threading.Event().wait()  # until `on_lost` has ended the process

    def _beat(self) -> None:
        """Sends and reads heartbeats; a separate thread judges, because a call does not return if host 0 is stopped."""
        number = 0
        while not self._ended.wait(BEAT_S):
            number += 1
            try:
                self._client.key_value_set(f"{_KEY}{self._me}", str(number), allow_overwrite=True)
                found = dict(self._client.key_value_dir_get(_KEY))
            except (RuntimeError, ValueError):  # host 0 is gone: nothing is seen of anybody
                found = {}
            self._silence.look({int(key.removeprefix(_KEY)): beat for key, beat in found.items()})

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
        except OSError:  # the server is not there yet, and the client will try again
            near.close()
            return
        self._held.append(near)
        for end in (near, far):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=_pass_on, args=(far, near), name="relay", daemon=True).start()
        _pass_on(near, far)
        with contextlib.suppress(OSError):  # not connected any more
            far.shutdown(socket.SHUT_RDWR)


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):  # either end is gone
        while data := source.recv(2**16):
            target.sendall(data)
