"""The one place that knows about devices and hosts: a mesh with a single axis, what is copied to all, what is cut.

A function mapped over the devices sees its own part of the batch, and adds up over all with `total`. Many hosts run the
same program; each cuts its own share of the batch among its own devices, and what is copied is the same on all.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import numpy as np
from jax._src import distributed  # the only way to the key-value store
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from motif_jax.liveness import Relay, Watch
from motif_jax.structs import UserError

AXIS = "data"
_copy = jax.jit(lambda leaf: leaf.copy())
START_TIMEOUT_S = 300.0  # for all hosts to be there
NEVER_S = 10**7  # JAX ends a process by an abort when its own patience with other hosts ends; `liveness` comes before
Tree = TypeVar("Tree")


def start_hosts(coordinator: str, num_processes: int, process_id: int) -> None:
    """Joins the other hosts of this run; call before anything else is asked of JAX.

    Args:
      coordinator: `host:port` of process 0; "slurm" takes everything from SLURM's environment; "" for a single host.
      num_processes, process_id: how many there are, and which this is.
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
        given["cluster_detection_method"] = "deactivate"  # who names the hosts has not asked SLURM for devices
        if is_loopback(coordinator):
            given["coordinator_bind_address"] = coordinator  # by default it listens on all addresses of its machine
    given["coordinator_address"] = Relay(address).address if process_id else address
    failed: list[Exception] = []

    def join() -> None:
        try:
            jax.distributed.initialize(**given, initialization_timeout=int(START_TIMEOUT_S) + 60)
        except Exception as error:  # raised below
            failed.append(error)

    # In a thread, because JAX ends the whole process when its own patience does, and is deaf to signals until then.
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
    """Where the tasks of a job step meet: on its first node, at a port which JAX derives from the job, too."""
    nodes = os.environ["SLURM_STEP_NODELIST"]  # node1,node2 or node[01-04,07],other
    first = re.match(r"([^,\[]*)(?:\[([^,\]-]*))?", nodes)
    assert first is not None  # it matches everything
    port = os.environ.get("JAX_COORDINATOR_PORT") or 2**16 - 2**12 + int(os.environ["SLURM_JOB_ID"]) % 2**12
    return os.environ.get("JAX_COORDINATOR_ADDRESS") or f"{first[1]}{first[2] or ''}:{port}"


def watch_hosts(on_lost: Callable[[list[int]], None]) -> Watch:
    """Calls `on_lost`, in a thread of its own, when other hosts have died."""
    return Watch(distributed.global_state.client, *host(), on_lost)


def leave_hosts() -> None:
    """Waits until all hosts are here; after that none needs the others."""
    jax.distributed.shutdown()


def is_loopback(address: str) -> bool:
    """Whether `host:port` is for this machine alone."""
    name = address.rpartition(":")[0]
    return name in ("localhost", "[::1]") or name.startswith("127.")


def host() -> tuple[int, int]:
    """Which host this is, and of how many. Asks no device, which would wait for those of the other hosts."""
    return distributed.global_state.process_id, distributed.global_state.num_processes


def from_first_host(tree: Tree) -> Tree:
    """Returns the first host's `tree` on every host."""
    if jax.process_count() == 1:
        return tree
    arrays = jax.tree.map(np.asarray, tree)
    # As bytes: JAX would make 32 bits of 64, and a number of steps is soon too large for those.
    flat = jax.tree.map(lambda array: np.frombuffer(array.tobytes(), np.uint8), arrays)
    flat = multihost_utils.broadcast_one_to_all(flat)
    return jax.tree.map(
        lambda array, sent: np.frombuffer(np.asarray(sent).tobytes(), array.dtype).reshape(array.shape), arrays, flat
    )


def from_every_host(numbers: np.ndarray) -> np.ndarray:
    """What each host gives. All must ask, in the same order as for everything else that they do together.

    Args:
      numbers: [N] int32.

    Returns:
      [hosts, N]
    """
    if jax.process_count() == 1:
        return numbers[None]
    return np.asarray(multihost_utils.process_allgather(numbers))


def local_copy(tree: Tree) -> Tree:
    """Copies a tree that is the same on all devices to one device of this host."""
    return jax.tree.map(lambda leaf: _copy(leaf.addressable_data(0)), tree)


def make_mesh(num_devices: int = 0, flag: str = "num_devices") -> Mesh:
    """All devices of all hosts in a row, or the first so many."""
    devices = jax.devices()
    if not 0 <= num_devices <= len(devices):
        kind = devices[0].platform
        raise UserError(f"{num_devices} devices were asked for, but there are {len(devices)} of kind {kind} ({flag})")
    if num_devices and num_devices < len(devices) and jax.process_count() > 1:
        raise UserError(f"with several hosts all of their {len(devices)} devices are used, not {num_devices} ({flag})")
    return jax.make_mesh((num_devices or len(devices),), (AXIS,), devices=devices[: num_devices or None])


def replicate(tree: Tree, mesh: Mesh) -> Tree:
    """A copy on every device; every host must give the same."""
    return _place(tree, NamedSharding(mesh, P()))


def shard(tree: Tree, mesh: Mesh, axis: int = 0) -> Tree:
    """Cut among the devices along one axis of each array; with several hosts, each gives its own share."""
    return _place(tree, NamedSharding(mesh, P(*[None] * axis, AXIS)))


def _place(tree: Tree, sharding: NamedSharding) -> Tree:
    if jax.process_count() == 1:
        return jax.device_put(tree, sharding)
    return jax.tree.map(lambda leaf: jax.make_array_from_process_local_data(sharding, np.asarray(leaf)), tree)


def map_update(update: Callable[..., Any], mesh: Mesh, batch_axis: int, num_constants: int = 0) -> Any:
    """Compiles `update(state, *constants, batch)` over all devices; the state is given away.

    Args:
      update: sees copies of the state and the constants, and its part of the batch; what it returns must be the same on
        every device, by way of `total`.
      mesh: the devices.
      batch_axis: axis of the batch's arrays that is cut.
      num_constants: arguments between state and batch that are copied to all.
    """
    specs = (P(), *[P()] * num_constants, P(*[None] * batch_axis, AXIS))
    mapped = jax.shard_map(update, mesh=mesh, in_specs=specs, out_specs=P(), check_vma=False)
    return jax.jit(mapped, donate_argnums=0)


def total(tree: Tree) -> Tree:
    """The sum over all devices, inside a mapped function."""
    return jax.lax.psum(tree, AXIS)
