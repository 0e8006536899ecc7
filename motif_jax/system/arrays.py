"""Reads arrays in NumPy's formats from outside: an array, or one line about the file."""

from __future__ import annotations

import io
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from motif_jax.system.foreign import check_regular

# NumPy's exceptions for a damaged header; MemoryError: it claims more than there is.
NO_ARRAY = (ValueError, TypeError, SyntaxError, EOFError, OverflowError, MemoryError, tokenize.TokenError)


def read_array(path: Path, mapped: bool = False) -> np.ndarray:
    """Reads a `.npy` file, but not archives or pickles.

    `mapped`: maps the file for reading, instead of reading all of it. Raises ValueError, with one line, if the file is
    not an array or is truncated, and OSError if it cannot be read.
    """
    try:
        check_regular(path)
        array = np.lib.format.open_memmap(path, mode="r")  # which finds out whether all of it is there
        return array if mapped else np.array(array)
    except NO_ARRAY as error:
        raise ValueError((str(error).splitlines() or ["it is not an array"])[0]) from error


def read_arrays(path: Path, names: Iterable[str], optional: Iterable[str], limit: int) -> dict[str, np.ndarray]:
    """Reads arrays of an `.npz` file; raises ValueError if one is missing, damaged, or if they are too large.

    `names`: required arrays. `limit`: bytes of all these arrays together.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            there = set(archive.namelist())
            wanted = [archive.getinfo(f"{name}.npy") for name in names]
            wanted += [archive.getinfo(f"{name}.npy") for name in optional if f"{name}.npy" in there]
            if sum(member.file_size for member in wanted) > limit:
                raise ValueError(f"it unpacks to more than {limit:,} bytes")
            files = {member.filename.removesuffix(".npy"): io.BytesIO(archive.read(member)) for member in wanted}
            return {name: np.lib.format.read_array(file, allow_pickle=False) for name, file in files.items()}
    except (*NO_ARRAY, KeyError, RuntimeError, zipfile.BadZipFile, zlib.error, struct.error) as error:
        raise ValueError((str(error).splitlines() or ["it is not an archive"])[0]) from error
