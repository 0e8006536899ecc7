"""Detects that another host of a run has died or hangs, before JAX notices and ends this process.

JAX ends the process with a stack trace, which Python cannot prevent, in two cases. Each is avoided here:

- The connection to the coordination service, which runs on host 0, closes. So JAX's client connects to a `Relay` in its
  own process, which keeps that connection open even if host 0 is gone.
- JAX's own heartbeats fail. So their timeout is set longer than any run, and a `Watch` sends heartbeats instead.

A heartbeat is a counter in the key-value store of the coordination service. A host is lost if its counter does not
change for `SILENT_BEATS` beats: its process was killed, is stopped, or cannot be reached. A process that is stopped
itself does not count the beats of the others meanwhile, so it does not take them for lost when it goes on.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Any

BEAT_S = 1.0  # seconds between two heartbeats
SILENT_BEATS = 30  # a host is lost when so many heartbeats in a row are missing
_KEY = "motif_jax/beats/"


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
        self._silent = {host: 0 for host in range(count) if host != me}  # beats in a row that are missing
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
        """Sends and reads heartbeats; a separate thread counts, because a call does not return if host 0 is stopped."""
        number, seen = 0, dict.fromkeys(self._silent, "")
        while not self._ended.wait(BEAT_S):
            number += 1
            try:
                self._client.key_value_set(f"{_KEY}{self._me}", str(number), allow_overwrite=True)
                found = dict(self._client.key_value_dir_get(_KEY))
            except (RuntimeError, ValueError):  # host 0 is gone, which counts as a missing beat
                continue
            for host in self._silent:
                beat = found.get(f"{_KEY}{host}", "")
                if beat != seen[host]:
                    seen[host], self._silent[host] = beat, 0

    def _judge(self) -> None:
        while not self._ended.wait(BEAT_S):
            for host in self._silent:
                self._silent[host] += 1
            lost = [host for host, missed in self._silent.items() if missed >= SILENT_BEATS]
            if lost:
                self._ended.set()
                # Without host 0 no heartbeats arrive, so the other hosts only seem to be lost.
                self._on_lost([0] if 0 in lost else lost)


class Relay:
    """Passes bytes between a client in this process and a server; the client does not notice when the server dies."""

    def __init__(self, address: str):
        """Listens on a free port of the loopback interface; `address` is the server's, as `host:port`."""
        name, _, port = address.rpartition(":")
        self._server = (name.strip("[]"), int(port))
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
