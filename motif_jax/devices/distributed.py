"""The hosts of one run: how they meet, which of them this is, and small things that they tell each other.

Several hosts run the same program at the same time, each with its own games and devices. What they tell each other goes
through JAX's collective operations, which all hosts must call in the same order.
"""

from __future__ import annotations

import functools
import json
import math
import os
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import numpy as np
from jax._src import distributed  # the only way to the key-value store
from jax.experimental import multihost_utils

from motif_jax.devices.liveness import Relay, Watch
from motif_jax.devices.parameters import leaves_by_path, sum_of_arrays
from motif_jax.structs import Stopped, UserError
from motif_jax.system.meeting import Meeting, split_address

START_TIMEOUT_S = 300.0  # for all hosts to be there
LOOK_EVERY_S = 0.5  # whether a signal has asked to stop meanwhile
NEVER_S = 10**7  # JAX aborts the process when it has waited so long for another host; `liveness` acts long before
Tree = TypeVar("Tree")


def start_hosts(meeting: Meeting | None, stop_asked: Callable[[], str]) -> None:
    """Joins the other hosts of this run; call it before JAX is used for anything else.

    Args:
      meeting: where they meet; None: this process works alone.
      stop_asked: gives the name of the signal that has asked this process to stop, "" if none has.
    """
    if meeting is None or jax.distributed.is_initialized():
        return
    jax.config.update("jax_enable_preemption_service", False)  # it would take SIGTERM away from us
    given: dict[str, Any] = {"heartbeat_timeout_seconds": NEVER_S, "shutdown_timeout_seconds": NEVER_S}
    given |= {"num_processes": meeting.num_processes, "process_id": meeting.process_id}
    given["cluster_detection_method"] = "deactivate"  # JAX would read SLURM's variables again
    if meeting.device is not None:
        given["local_device_ids"] = [meeting.device]
    check_known(meeting)
    if meeting.process_id:
        given["coordinator_address"] = Relay(meeting.host, meeting.port).address
    else:
        where = meeting.address if meeting.is_local else os.environ.get("JAX_COORDINATOR_BIND_ADDRESS", "")
        check_port(*(split_address(where, "JAX_COORDINATOR_BIND_ADDRESS") if where else ("", meeting.port)), meeting)
        given["coordinator_address"] = meeting.address
        given["coordinator_bind_address"] = where or None
    failed: list[Exception] = []

    def join() -> None:
        try:
            jax.distributed.initialize(**given, initialization_timeout=int(START_TIMEOUT_S) + 60)
        except Exception as error:  # raised below
            failed.append(error)

    # In a thread, because JAX does not react to signals while it waits, and aborts the process in the end.
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
            "seconds: each must run the same command with a number of its own, and reach process 0 there "
            "(--config.distributed.coordinator, .num_processes, .process_id)"
        )
    if failed:
        reason = (str(failed[0]).splitlines() or [""])[0]
        raise UserError(f"the hosts cannot meet at {meeting.address!r}: {reason} ({meeting.flag})")


def check_known(meeting: Meeting) -> None:
    """Refuses a host of which this machine knows no address."""
    try:
        socket.getaddrinfo(meeting.host, meeting.port)
    except socket.gaierror as error:
        if error.errno != socket.EAI_AGAIN:  # which says that the name server does not answer now
            raise UserError(f"the host {meeting.host!r} is not known here: {error.strerror} ({meeting.flag})") from None


def check_port(host: str, port: int, meeting: Meeting) -> None:
    """Refuses a port at which this process cannot listen, because JAX ends the process with a segmentation fault then.

    Args:
      host: where it would listen; "" for all addresses of this machine.
      port: of them.
      meeting: for the error message.
    """
    both = not host and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both or ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family, dualstack_ipv6=both).close()
    except OSError as error:
        raise UserError(
            f"the hosts cannot meet at {meeting.address!r}, as process 0 cannot listen on port {port}: "
            f"{os.strerror(error.errno or 0)} ({meeting.flag})"
        ) from None


def watch_hosts(on_lost: Callable[[list[int]], None]) -> Watch:
    """Calls `on_lost`, in a thread of its own, when other hosts have died."""
    return Watch(distributed.global_state.client, *host(), on_lost)


def leave_hosts() -> None:
    """Waits until all hosts call this; afterwards no host needs the others."""
    jax.distributed.shutdown()


def host() -> tuple[int, int]:
    """The number of this host, and the number of hosts. Uses no device, as that would wait for the other hosts."""
    return distributed.global_state.process_id, distributed.global_state.num_processes


@functools.cache
def wait_for_every_host() -> None:
    """Waits, the first time, until all hosts call this: before their first collective operation.

    In that operation they connect, and on CPUs JAX gives up if another host comes half a minute later.
    """
    client = distributed.global_state.client
    assert client is not None
    client.wait_at_barrier("motif_jax/first", NEVER_S * 100)  # milliseconds, in 31 bits


def from_first_host(tree: Tree) -> Tree:
    """Returns the first host's `tree` on every host."""
    if jax.process_count() == 1:
        return tree
    wait_for_every_host()
    arrays = jax.tree.map(np.asarray, tree)
    # As bytes, because JAX would make 32-bit numbers of 64-bit ones, and counts of steps outgrow those.
    flat = jax.tree.map(lambda array: np.frombuffer(array.tobytes(), np.uint8), arrays)
    flat = multihost_utils.broadcast_one_to_all(flat)
    return jax.tree.map(
        lambda array, sent: np.frombuffer(np.asarray(sent).tobytes(), array.dtype).reshape(array.shape), arrays, flat
    )


def dict_from_first_host(tree: Any) -> dict[str, Any]:
    """Returns the first host's arrays on every host, as nested dictionaries; other hosts may have other shapes."""
    if jax.process_count() == 1:
        return tree
    arrays = {path: np.asarray(leaf) for path, leaf in leaves_by_path(tree).items()}
    specs = [[path, array.dtype.name, array.shape] for path, array in arrays.items()]
    head = json.dumps(specs).encode()
    data = head + b"".join(array.tobytes() for array in arrays.values())
    sizes = from_first_host(np.array([len(head), len(data)], np.int64))
    mine = np.frombuffer(data, np.uint8) if host()[0] == 0 else np.zeros(sizes[1], np.uint8)
    sent = from_first_host(mine).tobytes()
    found: dict[str, Any] = {}
    place = int(sizes[0])
    for path, kind, shape in json.loads(sent[:place]):
        array: np.ndarray = np.frombuffer(sent, np.dtype(kind), math.prod(shape), place).reshape(shape)
        place += array.nbytes
        inner = found
        for name in path[:-1]:
            inner = inner.setdefault(name, {})
        inner[path[-1]] = array
    return found


def from_every_host(numbers: np.ndarray) -> np.ndarray:
    """Gathers an array from every host; all must call this, in the same order as other collective operations.

    Args:
      numbers: [N] int32.

    Returns:
      [hosts, N]
    """
    if jax.process_count() == 1:
        return numbers[None]
    wait_for_every_host()
    return np.asarray(multihost_utils.process_allgather(numbers))


def same_on_every_host(tree: Tree) -> tuple[Tree, list[int]]:
    """Returns the first host's `tree` on every host, and sends it only if some host does not have it already.

    Each host gives the tree that it has read or computed itself; only checksums of 32 bytes are compared. If a host's
    checksum is another one, the first host's tree is sent to all.

    Args:
      tree: arrays of the same names, shapes and types on every host.

    Returns:
      The tree, and the numbers of the hosts that had another one.
    """
    if jax.process_count() == 1:
        return tree, []
    mine = np.frombuffer(bytes.fromhex(sum_of_arrays(tree)), np.int32)  # [8]
    sums = from_every_host(mine)
    others = np.flatnonzero((sums != sums[0]).any(1)).tolist()
    return (from_first_host(tree) if others else tree), others
