"""Arrays in anonymous memory shared by processes, which is freed with the last process."""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Callable, Mapping

import numpy as np

from motif_jax.structs import ArraySpec

ALIGNMENT = 64  # bytes: two arrays never share a cache line


class SharedArrays:
    """Named arrays in one shared mapping. Processes that map the same file with the same specs share the values."""

    def __init__(self, specs: Mapping[str, ArraySpec], file: int | None = None):
        """Maps the file descriptor `file`; None: a new file of zeros."""
        offsets, size = {}, 0
        for name, spec in specs.items():
            offsets[name] = size
            size += -(-spec.nbytes // ALIGNMENT) * ALIGNMENT
        self.size = max(size, mmap.PAGESIZE)
        self.file = os.memfd_create("motif_jax") if file is None else file
        if file is None:
            os.ftruncate(self.file, self.size)
        mapping = mmap.mmap(self.file, self.size)  # kept alive by the arrays that refer to it
        self.arrays = {name: np.ndarray(spec.shape, spec.dtype, mapping, offsets[name]) for name, spec in specs.items()}

    def __getitem__(self, name: str) -> np.ndarray:
        return self.arrays[name]

    def claim(self, name: str, record: Callable[[int], None]) -> int:
        """Takes the next number of the counter `name` (one int64), which living processes never share.

        Calls `record` with the number before the counter is increased. If the process is killed in between, the number
        is recorded and will be taken once more, but never skipped. The kernel releases the lock of a killed process.
        """
        fcntl.lockf(self.file, fcntl.LOCK_EX)
        try:
            number = int(self.arrays[name][0])
            record(number)
            self.arrays[name][0] = number + 1
            return number
        finally:
            fcntl.lockf(self.file, fcntl.LOCK_UN)

    def close(self) -> None:
        """Closes the file; the memory itself is freed with the last array that refers to it."""
        self.arrays = {}
        os.close(self.file)
