"""The head of an array in NumPy's format: what it claims is checked before NumPy takes memory for it."""

from __future__ import annotations

import math
from typing import BinaryIO

import numpy as np

MAX_HEAD = 2**16  # bytes; the first version of the format has no more
HEADS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def check_head(file: BinaryIO, size: int) -> None:
    """Raises what NumPy raises for a damaged head, and ValueError if it is huge or claims more than is there.

    Args:
      file: an array, at its start; it is left there.
      size: of the file, in bytes.
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
