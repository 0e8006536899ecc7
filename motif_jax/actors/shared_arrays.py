"""Arrays in memory that processes share. It has no name in any file system and goes with the last process using it."""

from __future__ import annotations

import fcntl
import mmap
import os
import tempfile
from collections.abc import Callable, Mapping

import numpy as np

from motif_jax.structs import ArraySpec

ALIGNMENT = 64  # a cache line, so that no two arrays share one


class SharedArrays:
    """Named arrays in one shared mapping. Every process that maps the same file with the same specs sees the same."""

    def __init__(self, specs: Mapping[str, ArraySpec], file: int | None = None):
        """Maps `file`, or makes a new one filled with zeros."""
        offsets, size = {}, 0
        for name, spec in specs.items():
            offsets[name] = size
            size += -(-spec.nbytes // ALIGNMENT) * ALIGNMENT
        self.size = max(size, mmap.PAGESIZE)
        self.file = _anonymous_file() if file is None else file
        if file is None:
            os.ftruncate(self.file, self.size)
        mapping = mmap.mmap(self.file, self.size)  # kept alive by the arrays that look into it
        self.arrays = {name: np.ndarray(spec.shape, spec.dtype, mapping, offsets[name]) for name, spec in specs.items()}

    def __getitem__(self, name: str) -> np.ndarray:
        return self.arrays[name]

    def claim(self, name: str, message: Callable[[int], None]) -> int:
        """Takes the next number of the counter `name` (one int64); no two living processes get the same.

        `message` is called with the number before it is gone from the counter: a process killed in between leaves a
        number that is noted and will be given out once more, but never one that nobody has. The kernel drops the lock
        when its holder dies, so a worker killed here holds up nobody.
        """
        fcntl.lockf(self.file, fcntl.LOCK_EX)
        try:
            number = int(self.arrays[name][0])
            message(number)
            self.arrays[name][0] = number + 1
            return number
        finally:
            fcntl.lockf(self.file, fcntl.LOCK_UN)

    def close(self) -> None:
        """Forgets the file; the memory itself goes with the last array that looks into it."""
        self.arrays = {}
        os.close(self.file)


def _anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("motif_jax")
    with tempfile.TemporaryFile() as file:  # unlinked from the start
        return os.dup(file.fileno())
