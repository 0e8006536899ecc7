"""Flat views of trees of parameters, by the path of names to each array; and checksums of trees."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from motif_jax.structs import UserError


def leaves_by_path(tree: Any) -> dict[tuple[str, ...], Any]:
    """All arrays of a tree, by their paths: {"a": {"b": x}} -> {("a", "b"): x}"""
    return {name_of(path): array for path, array in jax.tree_util.tree_flatten_with_path(tree)[0]}


def name_of(path: Sequence[Any]) -> tuple[str, ...]:
    """The names in a path of `tree_flatten_with_path`, without parts named "value"."""
    return tuple(name for name in keys_of(path) if name != "value")


def keys_of(path: Sequence[Any]) -> tuple[str, ...]:
    """All names in a path of `tree_flatten_with_path`."""
    return tuple(str(getattr(part, "key", getattr(part, "idx", getattr(part, "name", part)))) for part in path)


def check_parameters(tree: Any, source: Path, flag: str = "path") -> None:
    """Raises UserError, which names the array, if a tree from `source` has a number that is not finite."""
    for name, leaf in leaves_by_path(tree).items():
        array = np.asarray(leaf)
        if jax.numpy.issubdtype(array.dtype, np.floating) and not np.isfinite(array).all():
            raise UserError(f"{'.'.join(name)} in {str(source)!r} holds a value that is not finite ({flag})")


def rebuild(like: Any, by_path: Mapping[tuple[str, ...], Any], source: Path, flag: str = "path") -> Any:
    """Puts arrays into the structure of `like`; raises UserError unless names, shapes and dtypes are equal and all
    numbers finite.
    """
    wanted, structure = jax.tree_util.tree_flatten_with_path(like)
    arrays = {name: np.asarray(array) for name, array in by_path.items()}
    expected = {name_of(path): f"{leaf.shape} {leaf.dtype}" for path, leaf in wanted}
    has = {name: f"{array.shape} {array.dtype}" for name, array in arrays.items()}
    for name in (*expected, *sorted(has)):
        if has.get(name) != expected.get(name):
            raise UserError(
                f"the checkpoint in {str(source)!r} is of another architecture: {'.'.join(name)} is "
                f"{has.get(name, 'nothing')}, not {expected.get(name, 'nothing')} ({flag})"
            )
    tree = jax.tree_util.tree_unflatten(structure, [arrays[name_of(path)] for path, _ in wanted])
    check_parameters(tree, source, flag)
    return tree


def sum_of_arrays(state: Any) -> str:
    """SHA-256 checksum of the arrays of a tree and their names, independent of the kinds of containers."""
    checksum = hashlib.sha256()
    for name, leaf in sorted(leaves_by_path(state).items()):
        array = np.asarray(leaf)
        checksum.update(f"{name} {array.dtype} {array.shape}".encode())
        checksum.update(np.ascontiguousarray(array).tobytes())
    return checksum.hexdigest()
