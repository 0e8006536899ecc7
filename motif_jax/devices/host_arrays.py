"""Copies arrays from a mesh to one host, and exchanges arrays between hosts.

Actors and checkpoints use copies, because a program on all devices may reuse the memory of its arguments, and other
threads of a host must not run programs on several devices at the same time. An array may be cut among the devices of a
host (see mesh.py), never among hosts; copies join its parts.

The exchange uses JAX's collective operations, which all hosts must call in the same order.
"""

from __future__ import annotations

from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils

Tree = TypeVar("Tree")


def local_copy(tree: Tree) -> Tree:
    """Copies arrays of a mesh to one device of this host, each as a whole.

    Other hosts and collective operations are not involved, so any thread may use the copy at any time.
    """
    leaves, structure = jax.tree.flatten(tree)
    replicated = [number for number, leaf in enumerate(leaves) if leaf.is_fully_replicated]
    copies = _copy_all([leaves[number].addressable_data(0) for number in replicated])  # one program for all arrays
    by_number = dict(zip(replicated, copies, strict=True))
    return jax.tree.unflatten(
        structure, [by_number[number] if number in by_number else _joined(leaf) for number, leaf in enumerate(leaves)]
    )


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
    flat = multihost_utils.broadcast_one_to_all(flat)
    return jax.tree.map(
        lambda array, sent: np.frombuffer(np.asarray(sent).tobytes(), array.dtype).reshape(array.shape), arrays, flat
    )


def from_every_host(numbers: np.ndarray) -> np.ndarray:
    """Gathers an array from every host; all must call this, in the same order as other collective operations.

    `numbers`: [N] int32.

    Returns:
      [hosts, N]
    """
    if jax.process_count() == 1:
        return numbers[None]
    return np.asarray(multihost_utils.process_allgather(numbers))
