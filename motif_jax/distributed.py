"""The hosts of one run: how they meet, which of them this is, and small things that they tell each other.

Several hosts run the same program at the same time, each with its own games and devices. What they tell each other goes
through JAX's collective operations, which all hosts must call in the same order.
"""

from __future__ import annotations

import json
import math
import os
import re
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import numpy as np
from jax._src import distributed  # the only way to the key-value store
from jax.experimental import multihost_utils

from motif_jax.liveness import Relay, Watch
from motif_jax.parameters import leaves_by_path, sum_of_arrays
from motif_jax.structs import UserError

START_TIMEOUT_S = 300.0  # for all hosts to be there
NEVER_S = 10**7  # JAX aborts the process when it has waited so long for another host; `liveness` acts long before
Tree = TypeVar("Tree")


def start_hosts(coordinator: str, num_processes: int, process_id: int) -> None:
    """Joins the other hosts of this run; call it before JAX is used for anything else.

    Args:
      coordinator: `host:port` of process 0; "slurm" takes everything from SLURM's environment; "" for a single host.
      num_processes: number of hosts.
      process_id: number of this host, from 0.
    """
    if not coordinator or jax.distributed.is_initialized():
        return
    jax.config.update("jax_enable_preemption_service", False)  # it would take SIGTERM away from us
    given: dict[str, Any] = {"heartbeat_timeout_seconds": NEVER_S, "shutdown_timeout_seconds": NEVER_S}
    if coordinator == "slurm":
        process_id, address = int(os.environ["SLURM_PROCID"]), slurm_coordinator()
        given["cluster_detection_method"] = "slurm"
        if os.environ.get("SLURM_STEP_NUM_TASKS") == os.environ.get("SLURM_STEP_NUM_NODES"):
            given["local_device_ids"] = []  # the only task here has all devices; JAX would take the first
    else:
        address = coordinator
        given |= {"num_processes": num_processes, "process_id": process_id}
        given["cluster_detection_method"] = "deactivate"  # a user who names the hosts has not asked SLURM for devices
        if is_loopback(coordinator):
            given["coordinator_bind_address"] = coordinator  # by default it listens on all addresses of its machine
    given["coordinator_address"] = Relay(address).address if process_id else address
    failed: list[Exception] = []

    def join() -> None:
        try:
            jax.distributed.initialize(**given, initialization_timeout=int(START_TIMEOUT_S) + 60)
        except Exception as error:  # raised below
            failed.append(error)

    # In a thread, because JAX does not react to signals while it waits, and aborts the process in the end.
    joining = threading.Thread(target=join, name="joining", daemon=True)
    joining.start()
    joining.join(START_TIMEOUT_S)
    if joining.is_alive():
        how_many = "" if coordinator == "slurm" else f"{num_processes} "
        raise UserError(
            f"the {how_many}hosts have not all met at {coordinator!r} in {START_TIMEOUT_S:.0f} seconds: each must run "
            "the same command with a number of its own, and reach process 0 there (--config.distributed.coordinator, "
            ".num_processes, .process_id)"
        )
    if failed:
        reason = (str(failed[0]).splitlines() or [""])[0]
        raise UserError(f"the hosts cannot meet at {coordinator!r}: {reason} (--config.distributed.coordinator)")


def slurm_coordinator() -> str:
    """The address at which the tasks of a SLURM job step meet: its first node, and the port that JAX would use."""
    nodes = os.environ["SLURM_STEP_NODELIST"]  # node1,node2 or node[01-04,07],other
    first = re.match(r"([^,\[]*)(?:\[([^,\]-]*))?", nodes)
    assert first is not None  # it matches everything
    port = os.environ.get("JAX_COORDINATOR_PORT") or 2**16 - 2**12 + int(os.environ["SLURM_JOB_ID"]) % 2**12
    return os.environ.get("JAX_COORDINATOR_ADDRESS") or f"{first[1]}{first[2] or ''}:{port}"


def watch_hosts(on_lost: Callable[[list[int]], None]) -> Watch:
    """Calls `on_lost`, in a thread of its own, when other hosts have died."""
    return Watch(distributed.global_state.client, *host(), on_lost)


def leave_hosts() -> None:
    """Waits until all hosts call this; afterwards no host needs the others."""
    jax.distributed.shutdown()


def is_loopback(address: str) -> bool:
    """Whether `host:port` can be reached from this machine only."""
    name = address.rpartition(":")[0]
    return name in ("localhost", "[::1]") or name.startswith("127.")


def host() -> tuple[int, int]:
    """The number of this host, and the number of hosts. Uses no device, as that would wait for the other hosts."""
    return distributed.global_state.process_id, distributed.global_state.num_processes


def from_first_host(tree: Tree) -> Tree:
    """Returns the first host's `tree` on every host."""
    if jax.process_count() == 1:
        return tree
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
