"""The one place that knows about devices and hosts: a mesh with a single axis, what is copied to all, what is cut.

A function mapped over the devices sees its own part of the batch, and adds up over all with `total`. Many hosts run the
same program; each cuts its own share of the batch among its own devices, and what is copied is the same on all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from motif_jax.structs import UserError

AXIS = "data"
_copy = jax.jit(lambda leaf: leaf.copy())
START_TIMEOUT_S = 300  # for all hosts to be there
Tree = TypeVar("Tree")


def start_hosts(coordinator: str, num_processes: int, process_id: int) -> None:
    """Joins the other hosts of this run; call before anything else is asked of JAX.

    Args:
      coordinator: `host:port` of process 0; "slurm" takes everything from SLURM's environment; "" for a single host.
      num_processes, process_id: how many there are, and which this is.
    """
    if not coordinator or jax.distributed.is_initialized():
        return
    if coordinator == "slurm":
        given: dict[str, Any] = {"cluster_detection_method": "slurm"}
    else:
        given = {"coordinator_address": coordinator, "num_processes": num_processes, "process_id": process_id}
    try:
        jax.distributed.initialize(**given, initialization_timeout=START_TIMEOUT_S)
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise UserError(
            f"the hosts did not find each other at {coordinator!r}: {reason} (--config.distributed)"
        ) from None


def host() -> tuple[int, int]:
    """Which host this is, and of how many."""
    return jax.process_index(), jax.process_count()


def from_first_host(tree: Tree) -> Tree:
    """What the first host gives, on all of them."""
    if jax.process_count() == 1:
        return tree
    return multihost_utils.broadcast_one_to_all(tree)


def any_host(flag: bool) -> bool:
    """Whether it is true on one of the hosts at least. All must ask."""
    if jax.process_count() == 1:
        return flag
    return bool(np.asarray(multihost_utils.process_allgather(np.array(flag))).any())


def local_copy(tree: Tree) -> Tree:
    """A copy on one device of this host, of what is the same on all."""
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
