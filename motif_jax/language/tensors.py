"""Files of other people's language models: JSON, and tensors that stay in their files until they are used."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError, safe_open

from motif_jax.structs import UserError, legible
from motif_jax.system.foreign import LIMIT, check_regular, leads_out, parse_foreign_json, read_bytes

FLOATS = ("F32", "BF16", "F16", "F64")  # safetensors' names of types


class Tensor(NamedTuple):
    """A tensor in an open file, loaded into memory only when used."""

    opened: Any
    name: str  # in its file
    file: str

    @classmethod
    def of(cls, opened: Any, name: str, file: Path) -> Tensor:
        """A tensor of an open file; raises UserError if its numbers are not floats."""
        if (dtype := opened.get_slice(name).get_dtype()) not in FLOATS:
            raise UserError(f"{name!r:.200} in {str(file)!r} has type {dtype}, but must have {', '.join(FLOATS)}")
        return cls(opened, name, str(file))

    @property
    def array(self) -> np.ndarray:
        """The numbers, as a copy."""
        return self.opened.get_tensor(self.name)

    @property
    def shape(self) -> list[int]:
        return self.opened.get_slice(self.name).get_shape()


def read_json(directory: Path, name: str) -> dict[str, Any]:
    """The content of a JSON file of the directory."""
    return _read(directory, name, parse_foreign_json)


def read_foreign_text(directory: Path, name: str) -> str:
    """The content of a text file of the directory."""
    return _read(directory, name, bytes.decode)


def _read(directory: Path, name: str, parse: Callable[[bytes], Any]) -> Any:
    file = find_file(directory, name)
    with legible(repr(str(file))):
        return parse(read_bytes(file, LIMIT))


def find_file(directory: Path, name: str) -> Path:
    """The path of an existing file of the directory; a link may only lead into the directory or the Hub's cache."""
    file = directory / name
    if not file.exists():
        raise UserError(f"there is no {name} in {str(directory)!r}")
    blobs = Path(os.path.realpath(directory)).parent.parent / "blobs"
    if leads_out(file, directory) and Path(os.path.realpath(file)).parent != blobs:
        raise UserError(f"{str(file)!r} is a link that leads out of its directory")
    return file


def open_tensors(file: Path) -> tuple[Any, list[str]]:
    """An opened file of tensors, checked by the library, and the names in it."""
    try:
        check_regular(file)
        opened = safe_open(file, "numpy")
        return opened, opened.keys()
    except OSError as error:
        raise UserError(f"cannot read {str(file)!r}: {error.strerror or error}") from error
    except (SafetensorError, ValueError) as error:
        raise UserError(f"cannot read {str(file)!r}: {' '.join(str(error).split())[:200]}") from error


def same(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same type and values."""
    try:
        ours, theirs = one.array, other.array
    except ValueError:  # a shape that NumPy does not support
        return False
    return ours.dtype == theirs.dtype and np.array_equal(ours, theirs)
