"""Detects dead hosts of a run before JAX does, because JAX would end this process.

JAX's client of host 0 ends its own process with a stack trace as soon as its connection to host 0 closes, and Python
cannot change that. So it is given a `Relay`, whose connection stays open. JAX's own heartbeats only allow an end of
that kind as well, so they are given more time than any run takes, and a `Watch` beats instead.

Beats are counters in the key-value store that JAX has on host 0. A host whose counter stands still is lost, whether its
process was killed, is stopped, or cannot be reached. A process that stands still itself counts nothing meanwhile, so
one that was stopped and goes on does not blame the others.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Any

BEAT_S = 1.0
SILENT_BEATS = 30  # a host is lost after so many that did not come
_KEY = "motif_jax/beats/"


class Watch:
    """Sends heartbeats for this host, and calls `on_lost` once, in a separate thread, when other hosts are silent."""

    def __init__(self, client: Any, me: int, count: int, on_lost: Callable[[list[int]], None]):
        """Starts.

        Args:
          client: of JAX's key-value store.
          me, count: which host this is, and of how many.
          on_lost: gets the lost hosts.
        """
        self._client, self._me, self._on_lost = client, me, on_lost
        self._silent = {host: 0 for host in range(count) if host != me}  # beats that did not come
        self._ended = threading.Event()
        for run in (self._beat, self._judge):
            threading.Thread(target=run, name="liveness", daemon=True).start()

    def stop(self) -> None:
        """Ends the beats: from now on the other hosts may leave."""
        self._ended.set()

    def wait_for_verdict(self) -> None:
        """For a host whose connection to another one broke. Returns if none of them turns out to be lost."""
        if self._ended.wait(BEAT_S * (SILENT_BEATS + 5)):
            threading.Event().wait()  # until `on_lost` has ended the process

    def _beat(self) -> None:
        """Apart from the judge, because a call of a host 0 that is stopped does not return."""
        number, seen = 0, dict.fromkeys(self._silent, "")
        while not self._ended.wait(BEAT_S):
            number += 1
            try:
                self._client.key_value_set(f"{_KEY}{self._me}", str(number), allow_overwrite=True)
                found = dict(self._client.key_value_dir_get(_KEY))
            except (RuntimeError, ValueError):  # host 0 is gone: silence, too
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
                # Without host 0 nobody hears of the others.
                self._on_lost([0] if 0 in lost else lost)


class Relay:
    """Passes on what a client in this process and a server elsewhere say, and hides from the client that it died."""

    def __init__(self, address: str):
        """Listens; `address` is the server's, `host:port`."""
        name, _, port = address.rpartition(":")
        self._server = (name.strip("[]"), int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._held: list[socket.socket] = []  # a socket that nobody holds is closed
        threading.Thread(target=self._accept, name="relay", daemon=True).start()

    @property
    def address(self) -> str:
        """Where the client finds it."""
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
