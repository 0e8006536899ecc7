"""The one place that knows about devices: a mesh with a single axis, what is copied to all and what is cut among them.

A function mapped over the devices sees its own part of the batch, and averages across all with `average`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import jax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

AXIS = "data"
Tree = TypeVar("Tree")


def make_mesh(num_devices: int = 0) -> Mesh:
    """All devices in a row, or the first so many."""
    devices = jax.devices()
    return jax.make_mesh((num_devices or len(devices),), (AXIS,), devices=devices[: num_devices or None])


def replicate(tree: Tree, mesh: Mesh) -> Tree:
    """A copy on every device."""
    return jax.device_put(tree, NamedSharding(mesh, P()))


def shard(tree: Tree, mesh: Mesh, axis: int = 0) -> Tree:
    """Cut among the devices along one axis of each array."""
    return jax.device_put(tree, NamedSharding(mesh, P(*[None] * axis, AXIS)))


def map_update(update: Callable[..., Any], mesh: Mesh, batch_axis: int, num_constants: int = 0) -> Any:
    """Compiles `update(state, *constants, batch) -> state` over all devices; the state is given away.

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
