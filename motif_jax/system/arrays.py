"""Reading of arrays in NumPy's formats, which are checked before memory is allocated for them."""

from __future__ import annotations

import io
import math
import os
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

import numpy as np

from motif_jax.system.foreign import check_regular

LARGEST_ARRAY = 2**34  # bytes of an array that is not mapped
MAX_HEAD = 2**16  # bytes of the header of an array in NumPy's format, the limit of the format's first version
HEADS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
# NumPy's exceptions for a damaged header.
NO_ARRAY = (ValueError, TypeError, SyntaxError, EOFError, OverflowError, MemoryError, tokenize.TokenError)


def read_array(path: Path, mapped: bool = False) -> np.ndarray:
    """Reads a `.npy` file, but not archives or pickles.

    `mapped`: maps the file for reading, instead of reading all of it. Raises ValueError, with one line, if the file is
    not an array or is truncated, and OSError if it cannot be read.
    """
    try:
        check_regular(path)
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            check_head(file, size)
            if mapped:
                return np.lib.format.open_memmap(path, mode="r")
            if size > LARGEST_ARRAY:
                raise ValueError(f"it has more than {LARGEST_ARRAY:,} bytes")
            return np.lib.format.read_array(file, allow_pickle=False)
    except NO_ARRAY as error:
        raise ValueError((str(error).splitlines() or ["it is not an array"])[0]) from error


def read_arrays(path: Path, names: Iterable[str], optional: Iterable[str], limit: int) -> dict[str, np.ndarray]:
    """Reads arrays of an `.npz` file; raises ValueError if one is missing, damaged, or if they are too large.

    `names`: required arrays. `limit`: bytes of all these arrays together.
    """
    try:
        with open(path, "rb") as opened, zipfile.ZipFile(opened) as archive:
            there = set(archive.namelist())
            wanted = [archive.getinfo(f"{name}.npy") for name in names]
            wanted += [archive.getinfo(f"{name}.npy") for name in optional if f"{name}.npy" in there]
            if sum(member.file_size for member in wanted) > limit:
                raise ValueError(f"it unpacks to more than {limit:,} bytes")
            arrays = {}
            for member in wanted:
                data = archive.read(member)  # at most `file_size`
                file = io.BytesIO(data)
                check_head(file, len(data))
                arrays[member.filename.removesuffix(".npy")] = np.lib.format.read_array(file, allow_pickle=False)
            return arrays
    except (*NO_ARRAY, KeyError, RuntimeError, zipfile.BadZipFile, zlib.error, struct.error) as error:
        raise ValueError((str(error).splitlines() or ["it is not an archive"])[0]) from error


def check_head(file: BinaryIO, size: int) -> None:
    """Checks the header of an array in NumPy's format, before NumPy allocates memory for the array.

    Raises NumPy's exceptions for a damaged header, and ValueError if the header is huge or claims more than the file
    has. The position of the file, at the start of the array, does not change.
    """
    start = file.read(12)
    if start[:6] == b"\x93NUMPY" and start[6:7] > b"\1" and int.from_bytes(start[8:12], "little") > MAX_HEAD:
        raise ValueError("its head is too long")
    file.seek(0)
    version = np.lib.format.read_magic(file)
    if version not in HEADS:
        raise ValueError(f"it is of version {version[0]}.{version[1]} of NumPy's format, which is not read here")
    shape, _, dtype = HEADS[version](file)
    claimed, there = math.prod(shape) * dtype.itemsize, size - file.tell()
    if claimed > there and not dtype.hasobject:
        raise ValueError(f"it should have {claimed:,} bytes, and has {there:,}")
    file.seek(0)
