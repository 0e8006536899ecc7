"""When a host counts as lost: by looks that have shown no heartbeat. And what a relay passes on."""

import socket
from types import SimpleNamespace

import numpy as np
import pytest

from motif_jax.devices import coordination, host_arrays
from motif_jax.devices.coordination import SILENT_BEATS, HostSilence

pytestmark = pytest.mark.quick


def beats(number, *hosts):
    return dict.fromkeys(hosts, str(number))


def test_a_host_that_sends_no_beats_is_lost_after_so_many_looks():
    silence = HostSilence([0, 2])
    for number in range(SILENT_BEATS):
        assert silence.lost() == []
        silence.look(beats(number, 0, 1) | {2: "7"})
    assert silence.lost() == []  # its first beat was seen by the first look
    silence.look(beats(-1, 0, 1) | {2: "7"})
    assert silence.lost() == [2]


def test_a_host_that_never_sent_a_beat_is_lost_as_well():
    silence = HostSilence([0, 2])
    for number in range(SILENT_BEATS):
        silence.look(beats(number, 0, 1))
    assert silence.lost() == [2]


def test_a_slow_host_is_not_lost_however_long_its_beats_take():
    silence = HostSilence([1])
    for number in range(10 * SILENT_BEATS):
        silence.look(beats(number // (SILENT_BEATS - 1), 1))
        assert silence.lost() == []


def test_a_process_that_does_not_look_takes_nobody_for_lost():
    """It was stopped, or waits for a busy machine: its beats come late as well, and so do its looks."""
    silence = HostSilence([0, 2])
    silence.look(beats(1, 0, 2))
    for _ in range(10):
        for _ in range(SILENT_BEATS - 1):
            silence.wait()  # a look takes this long
        assert silence.lost() == []
        silence.look(beats(1, 0, 2))  # and nobody had time for a beat meanwhile
    assert silence.lost() == []


def test_without_an_answer_of_host_0_it_is_host_0_that_is_lost():
    silence = HostSilence([0, 2])
    silence.look(beats(1, 0, 2))
    for _ in range(SILENT_BEATS):
        assert silence.lost() == []
        silence.wait()
    assert silence.lost() == [0]


def test_host_0_takes_nobody_for_lost_because_its_own_look_does_not_end():
    silence = HostSilence([1, 2])
    for _ in range(10 * SILENT_BEATS):
        silence.wait()
    assert silence.lost() == []


def test_where_the_connection_to_host_0_is_closed_only_host_0_is_lost():
    silence = HostSilence([0, 2])
    for _ in range(SILENT_BEATS):
        silence.look({})
    assert silence.lost() == [0]


def test_hosts_wait_for_each_other_before_their_first_collective_operation_and_only_then(monkeypatch):
    """On CPUs JAX gives up in it if another host comes half a minute later."""
    calls = []
    client = SimpleNamespace(wait_at_barrier=lambda name, timeout_ms: calls.append("barrier"))
    monkeypatch.setattr(coordination.distributed, "global_state", SimpleNamespace(client=client))
    monkeypatch.setattr(host_arrays.jax, "process_count", lambda: 2)
    monkeypatch.setattr(
        host_arrays.multihost_utils, "process_allgather", lambda numbers: calls.append("gather") or numbers
    )
    coordination.wait_for_every_host.cache_clear()
    for _ in range(2):
        host_arrays.from_every_host(np.zeros(1, np.int32))
    coordination.wait_for_every_host.cache_clear()
    assert calls == ["barrier", "gather", "gather"]


def test_a_connection_that_is_closed_without_a_byte_is_passed_on_and_one_that_breaks_later_is_not():
    """Host 0 opens its port for a moment before the service does; a client that was left waiting lost 20 seconds."""
    server = socket.create_server(("127.0.0.1", 0))
    name, port = coordination.Relay(*server.getsockname()).address.split(":")
    client = socket.create_connection((name, int(port)))
    server.accept()[0].close()
    assert client.recv(1) == b""
    client = socket.create_connection((name, int(port)))
    far, _ = server.accept()
    far.sendall(b"settings")
    assert client.recv(8) == b"settings"
    client.sendall(b"hello")
    assert far.recv(5) == b"hello"
    far.close()
    server.close()
    client.settimeout(1.0)
    with pytest.raises(TimeoutError):  # the service is gone, and the client does not notice
        client.recv(1)
