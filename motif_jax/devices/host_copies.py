"""Copies, on one host, of arrays that lie on the devices of a mesh.

A program on all devices may be given the memory of its arguments, and other threads of a host must not run programs on
several devices at the same time. So actors and checkpoints use copies. An array may be cut among the devices of a host
(see mesh.py); these functions put its parts together, or raise ValueError if this host has not all of them.
"""

from __future__ import annotations

from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding

Tree = TypeVar("Tree")


def local_copy(tree: Tree) -> Tree:
    """Copies arrays of a mesh to one device of this host, each as a whole.

    Neither other hosts nor collective operations take part, so any thread may use the copy at any time. Raises
    ValueError for an array of which this host has only a part.
    """
    leaves, structure = jax.tree.flatten(tree)
    whole = [number for number, leaf in enumerate(leaves) if leaf.is_fully_replicated]
    copies = _copy_all([leaves[number].addressable_data(0) for number in whole])  # one program, not one per array
    found = dict(zip(whole, copies, strict=True))
    return jax.tree.unflatten(
        structure, [found[number] if number in found else _joined(leaf) for number, leaf in enumerate(leaves)]
    )


def spread_copy(tree: Tree) -> Tree:
    """Copies arrays of a mesh to devices of this host, cut as they are; takes less memory than `local_copy`."""
    return jax.tree.map(
        lambda leaf: _copy(leaf.addressable_data(0)) if leaf.is_fully_replicated else _spread(leaf), tree
    )


def host_copy(tree: Any) -> Any:
    """Copies arrays, of a mesh or not, into NumPy arrays, each as a whole; ValueError if this host has only a part."""

    def copy(leaf: Any) -> np.ndarray:
        if not isinstance(leaf, jax.Array) or leaf.is_fully_addressable or leaf.is_fully_replicated:
            return np.array(leaf)
        _check_whole(leaf)
        return host_part(leaf)

    return jax.tree.map(copy, tree)


def host_part(leaf: jax.Array) -> np.ndarray:
    """The part of an array that this host has, as a NumPy array: its share of a batch, or a whole parameter."""
    parts = {start: np.asarray(part) for start, part in _parts(leaf).items()}
    first = np.min([*parts], 0)
    last = np.max([np.add(start, part.shape) for start, part in parts.items()], 0)
    found = np.empty(last - first, leaf.dtype)
    for start, part in parts.items():
        found[tuple(slice(a, a + size) for a, size in zip(start - first, part.shape, strict=True))] = part
    return found


_copy = jax.jit(lambda leaf: leaf.copy())
_copy_all = jax.jit(lambda leaves: [leaf.copy() for leaf in leaves])


@partial(jax.jit, static_argnums=(1, 2))
def _join(parts: list[jax.Array], starts: tuple[tuple[int, ...], ...], shape: tuple[int, ...]) -> jax.Array:
    found = jnp.zeros(shape, parts[0].dtype)
    for part, start in zip(parts, starts, strict=True):
        found = jax.lax.dynamic_update_slice(found, part, start)
    return found


def _parts(leaf: jax.Array) -> dict[tuple[int, ...], jax.Array]:
    """The different parts of an array on this host's devices, by their first indices."""
    parts: dict[tuple[int, ...], jax.Array] = {}
    for part in leaf.addressable_shards:
        parts.setdefault(tuple(where.start or 0 for where in part.index), part.data)
    return parts


def _check_whole(leaf: jax.Array) -> None:
    if sum(part.size for part in _parts(leaf).values()) != leaf.size:
        raise ValueError(f"this host has only a part of an array of shape {leaf.shape}: it is cut among hosts")


def _joined(leaf: jax.Array) -> jax.Array:
    _check_whole(leaf)
    parts, device = _parts(leaf), leaf.addressable_shards[0].device
    return _join([jax.device_put(part, device) for part in parts.values()], tuple(parts), leaf.shape)


def _spread(leaf: jax.Array) -> jax.Array:
    _check_whole(leaf)
    assert isinstance(leaf.sharding, NamedSharding)
    mesh, spec = leaf.sharding.mesh, leaf.sharding.spec
    here = {part.device: part.data for part in leaf.addressable_shards}
    place = next(place for place in mesh.devices if all(device in here for device in place.flat))
    sharding = NamedSharding(Mesh(place[None], mesh.axis_names, axis_types=mesh.axis_types), spec)
    parts = [_copy(here[device]) for device in place.flat]
    return jax.make_array_from_single_device_arrays(leaf.shape, sharding, parts)
