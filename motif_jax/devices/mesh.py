"""The mesh of devices, the placement of arrays on it, programs on all of its devices, and their memory.

The devices form a mesh with three axes:

- `data`: each device has a part of the batch, and all parameters.
- `fsdp`: each device has a part of the batch and a part of the parameters ("fully sharded data parallel"); a layer's
  parameters are gathered when it is computed.
- `tensor`: the devices share a part of the batch, and each computes a part of every layer.

A function that `map_update` compiles runs once per index ("place") of the `data` axis: it gets this place's part of the
batch, and sums over all places with `total`. The compiler (XLA) divides its arrays and its work along the other two
axes. The devices of one place belong to one host, so every host has a whole copy of the parameters among its devices.
With fsdp = tensor = 1 each place is one device.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from motif_jax.devices.parameters import name_of
from motif_jax.system.sizing import Devices, check_devices

DATA, FSDP, TENSOR = AXES = ("data", "fsdp", "tensor")
Tree = TypeVar("Tree")
# How parameters are cut: the first pattern that is found in an array's name ("encoder.kernel") decides.
Rules = Sequence[tuple[str, P]]


def make_mesh(num_devices: int = 0, fsdp: int = 1, tensor: int = 1, section: str = "") -> Mesh:
    """Arranges the first `num_devices` (0: all) of all hosts as a mesh; raises UserError for sizes that do not fit."""
    devices = jax.devices()
    here = Devices(devices[0].platform, jax.local_device_count(), 0)
    check_devices(num_devices, fsdp, tensor, here, section, len(devices) - here.number)
    devices = devices[: num_devices or None]
    if fsdp * tensor == 1:
        return jax.make_mesh((len(devices), 1, 1), AXES, (AxisType.Auto,) * 3, devices=devices)
    in_order = sorted(devices, key=lambda device: (device.process_index, device.id))  # each place on one host
    return Mesh(np.array(in_order).reshape(-1, fsdp, tensor), AXES, axis_types=(AxisType.Auto,) * 3)


def local_mesh(num_rows: int) -> Mesh:
    """All devices of this host if their number divides `num_rows`, and otherwise its first device."""
    devices = jax.local_devices()
    count = len(devices) if num_rows % len(devices) == 0 else 1
    return Mesh(np.array(devices[:count]).reshape(-1, 1, 1), AXES, axis_types=(AxisType.Auto,) * 3)


def batch_parts(mesh: Mesh) -> int:
    """The number of parts into which `shard` cuts a batch."""
    return mesh.shape[DATA] * mesh.shape[FSDP]


def replicate(tree: Tree, mesh: Mesh) -> Tree:
    """Puts a copy on every device; every host must pass the same tree."""
    return _put(tree, jax.tree.map(lambda _: NamedSharding(mesh, P()), tree))


def shard(tree: Tree, mesh: Mesh, axis: int = 0) -> Tree:
    """Cuts a batch into parts along one axis of each array; each of several hosts passes its own share."""
    sharding = NamedSharding(mesh, P(*[None] * axis, (DATA, FSDP)))
    if jax.process_count() == 1:
        return jax.device_put(tree, sharding)
    return jax.tree.map(lambda leaf: jax.make_array_from_process_local_data(sharding, np.asarray(leaf)), tree)


def place(tree: Tree, mesh: Mesh, rules: Rules = ()) -> Tree:
    """Puts parameters, or a state with arrays of the same names, as `shardings` says; all hosts pass the same tree."""
    return _put(tree, shardings(tree, mesh, rules))


def shardings(tree: Any, mesh: Mesh, rules: Rules = ()) -> Any:
    """The sharding of each array of a tree of parameters, or of their shapes; an optimizer's moments are cut likewise.

    By default, the longest side that `fsdp` divides is cut along `fsdp`, and the longest other side that `tensor`
    divides along `tensor`. Arrays with fewer than two sides (biases, scales) are copied to all devices.
    """

    def cut(path: Sequence[Any], leaf: Any) -> NamedSharding:
        name = ".".join(name_of(path))
        spec = next((spec for pattern, spec in rules if re.search(pattern, name)), None)
        return NamedSharding(mesh, _default_spec(leaf.shape, mesh) if spec is None else spec)

    return jax.tree_util.tree_map_with_path(cut, tree)


def _default_spec(shape: tuple[int, ...], mesh: Mesh) -> P:
    cut: dict[int, str] = {}
    for axis in (FSDP, TENSOR):
        sides = [side for side in range(len(shape)) if side not in cut and shape[side] % mesh.shape[axis] == 0]
        if len(shape) > 1 and mesh.shape[axis] > 1 and sides:
            cut[max(sides, key=lambda side: shape[side])] = axis
    return P(*[cut.get(side) for side in range(max(cut, default=-1) + 1)])


def _put(tree: Tree, where: Any) -> Tree:
    if jax.process_count() == 1:
        return jax.device_put(tree, where)

    def put(leaf: Any, sharding: NamedSharding) -> jax.Array:
        array = np.asarray(leaf)
        return jax.make_array_from_process_local_data(sharding, array, array.shape)

    return jax.tree.map(put, tree, where)


def map_update(
    update: Callable[..., Any], mesh: Mesh, batch_axis: int, num_constants: int = 0, results: Any = None
) -> Any:
    """Compiles `update(state, *constants, batch)` for all devices; the state is donated.

    Args:
      update: gets the whole state and constants, and its place's part of the batch. Its results must be the same at
        every place of the `data` axis, by means of `total`.
      batch_axis: the axis along which the batch's arrays are cut.
      num_constants: number of arguments between state and batch.
      results: the results' shardings, a tree or a prefix of one. None: copies on every device.
    """
    if mesh.size == mesh.shape[DATA]:
        specs = (P(), *[P()] * num_constants, P(*[None] * batch_axis, DATA))
        mapped = jax.shard_map(update, mesh=mesh, in_specs=specs, out_specs=P(), check_vma=False)
        return jax.jit(mapped, donate_argnums=0, out_shardings=results)

    # The compiler divides the arrays of all three axes here, and `data` is an axis of the arrays. `jax.shard_map` with
    # axis_names={"data"} would say the same, but XLA aborts the process when such a program indexes an array that is
    # cut along another axis, and refuses it where `data` has one place (jaxlib 0.10.2).
    places = mesh.shape[DATA]
    axes = None, *[None] * num_constants, batch_axis
    together = jax.vmap(update, axes, None, axis_name=DATA, axis_size=places, spmd_axis_name=DATA)
    where = NamedSharding(mesh, P(*[None] * batch_axis, DATA, FSDP))

    def cut(array: jax.Array) -> jax.Array:
        *before, batch = array.shape[: batch_axis + 1]
        parts = *before, places, batch // places, *array.shape[batch_axis + 1 :]
        return jax.lax.with_sharding_constraint(array.reshape(parts), where)

    def program(state: Any, *others: Any) -> Any:
        *constants, batch = others
        return together(state, *constants, jax.tree.map(cut, batch))

    return jax.jit(program, donate_argnums=0, out_shardings=results)


def total(tree: Tree) -> Tree:
    """The sum over all parts of the batch, inside a mapped function."""
    return jax.lax.psum(tree, DATA)


class DeviceMemory(NamedTuple):
    """Memory of a device, in bytes."""

    limit: int  # for JAX
    free: int  # of the limit


def describe_memory(device: Any) -> DeviceMemory | None:
    """JAX's memory on a device; None if JAX does not know it, as on CPUs."""
    stats = device.memory_stats() or {}
    if "bytes_limit" not in stats:
        return None
    return DeviceMemory(stats["bytes_limit"], stats["bytes_limit"] - stats.get("bytes_in_use", 0))


def needed_bytes(compiled: Any) -> int:
    """Bytes that a compiled program takes on a device beside its arguments; 0 if the compiler does not know."""
    analysis = compiled.memory_analysis()
    if analysis is None:
        return 0
    return int(analysis.temp_size_in_bytes + analysis.output_size_in_bytes - analysis.alias_size_in_bytes)


# ---- copies from a mesh to one host, and between hosts
#
# Actors and checkpoints use copies, because a program on all devices may reuse the memory of its arguments, and other
# threads of a host must not run programs on several devices at the same time. An array may be cut among the devices
# of a host, never among hosts; copies join its parts. All hosts must call collective operations in the same order.


def local_copy(tree: Tree) -> Tree:
    """Copies arrays of a mesh to one device of this host, each as a whole.

    Other hosts and collective operations are not involved, so any thread may use the copy at any time.
    """
    leaves, structure = jax.tree.flatten(tree)
    copies = iter(_copy_all([leaf.addressable_data(0) for leaf in leaves if leaf.is_fully_replicated]))  # one program
    copied = [next(copies) if leaf.is_fully_replicated else _joined(leaf) for leaf in leaves]
    return jax.tree.unflatten(structure, copied)


def host_copy(tree: Any) -> Any:
    """Copies arrays, of a mesh or not, into NumPy arrays, each as a whole."""
    return jax.tree.map(lambda leaf: host_part(leaf) if isinstance(leaf, jax.Array) else np.array(leaf), tree)


def host_part(leaf: jax.Array) -> np.ndarray:
    """This host's part of an array, as a NumPy array: its share of a batch, or a whole parameter."""
    parts = {start: np.asarray(part) for start, part in _parts(leaf).items()}
    first = np.min([*parts], 0)
    last = np.max([np.add(start, part.shape) for start, part in parts.items()], 0)
    joined = np.empty(last - first, leaf.dtype)
    for start, part in parts.items():
        joined[tuple(slice(a, a + size) for a, size in zip(start - first, part.shape, strict=True))] = part
    return joined


_copy_all = jax.jit(lambda leaves: [leaf.copy() for leaf in leaves])


@partial(jax.jit, static_argnums=(1, 2))
def _join(parts: list[jax.Array], starts: tuple[tuple[int, ...], ...], shape: tuple[int, ...]) -> jax.Array:
    joined = jnp.zeros(shape, parts[0].dtype)
    for part, start in zip(parts, starts, strict=True):
        joined = jax.lax.dynamic_update_slice(joined, part, start)
    return joined


def _parts(leaf: jax.Array) -> dict[tuple[int, ...], jax.Array]:
    """The different parts of an array on this host's devices, by their first indices."""
    parts: dict[tuple[int, ...], jax.Array] = {}
    for part in leaf.addressable_shards:
        parts.setdefault(tuple(where.start or 0 for where in part.index), part.data)
    return parts


def _joined(leaf: jax.Array) -> jax.Array:
    parts, device = _parts(leaf), leaf.addressable_shards[0].device
    return _join([jax.device_put(part, device) for part in parts.values()], tuple(parts), leaf.shape)


def from_first_host(tree: Tree) -> Tree:
    """Returns the first host's `tree` on every host."""
    if jax.process_count() == 1:
        return tree
    arrays = jax.tree.map(np.asarray, tree)
    # As bytes, because JAX would convert 64-bit numbers to 32 bits, which are too few for counts of steps.
    flat = jax.tree.map(lambda array: np.frombuffer(array.tobytes(), np.uint8), arrays)
    sent = jax.tree.map(np.asarray, multihost_utils.broadcast_one_to_all(flat))
    return jax.tree.map(lambda one, data: np.frombuffer(data.tobytes(), one.dtype).reshape(one.shape), arrays, sent)


def from_every_host(numbers: np.ndarray) -> np.ndarray:
    """Gathers an array from every host; all must call this in the same order. [N] int32 -> [hosts, N]"""
    if jax.process_count() == 1:
        return numbers[None]
    return np.asarray(multihost_utils.process_allgather(numbers))
