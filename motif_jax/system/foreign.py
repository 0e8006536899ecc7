"""Safe reading of files: only regular files, and only up to a size limit.

Opening a named pipe waits for a writer, reading a device may never end, and a link may lead anywhere. A user may name
such a file, or a workdir from an archive may contain it. So this module opens all files (`open_regular`), and limits
the size of whole files, lines, and arrays.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import math
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

LIMIT = 16 * 2**20  # bytes of a text file
LONGEST_LINE = 2**24  # bytes of a line of JSON; the rows of metrics have a few thousand
MAX_HOLES = 1000  # largest ratio of size to bytes on disk, far beyond that of compressing file systems
MAY_BE_HOLES = 2**30  # bytes; smaller files are read in a second, and so are not checked for holes
MAX_HEAD = 2**16  # bytes of the header of an array in NumPy's format, the limit of the format's first version
HEADS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
HOLLOW = "almost all of it is a hole (a sparse file): it was not copied completely"
FILE_TYPES = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def check_regular(path: Path) -> None:
    """Raises OSError, with one line, if `path` is neither a regular file nor a link to one."""
    _check_mode(path, os.stat(path).st_mode)


def _check_mode(path: Path, mode: int) -> None:
    kind = stat.S_IFMT(mode)
    if kind != stat.S_IFREG:
        raise OSError(errno.EINVAL, f"it is {FILE_TYPES.get(kind, 'something else')}, not a file", str(path))


def open_regular(path: Path) -> io.BufferedReader:
    """Opens a regular file, or a link to one, for reading; raises OSError for anything else, and never waits."""
    check_regular(path)  # opening a device may change it
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK | os.O_NOCTTY))  # noqa: SIM115
    try:
        _check_mode(path, os.fstat(file.fileno()).st_mode)  # the file may have been replaced since
    except OSError:
        file.close()
        raise
    return file


def check_regular_tree(directory: Path) -> None:
    """Raises OSError, with one line, if a file below a directory is not regular, or is almost all a hole.

    Links to directories are not followed.
    """
    for folder, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # a dangling link, or a file just removed
                check_regular(Path(folder, name))
                if is_hollow(Path(folder, name)):
                    raise OSError(errno.EINVAL, HOLLOW, str(Path(folder, name)))


def read_text(path: Path) -> str:
    """The text of a UTF-8 file; raises OSError if it cannot be read, ValueError if it is too long or not text."""
    return read_bytes(path, LIMIT).decode()


def read_bytes(path: Path, limit: int) -> bytes:
    """The bytes of a file; raises ValueError if there are more than `limit`."""
    with open_regular(path) as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise ValueError(f"it has more than {limit:,} bytes")
    return data


def lines_of(path: Path, longest: int = LONGEST_LINE) -> Iterator[bytes]:
    """Yields the lines of a file, with newlines; raises ValueError for a line of more than `longest` bytes."""
    with open_regular(path) as file:
        for number, line in enumerate(iter(lambda: file.readline(longest + 1), b""), 1):
            if len(line) > longest:
                raise ValueError(f"line {number:,} has more than {longest:,} bytes")
            yield line


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal; raises ValueError if almost all of a large file is a hole."""
    with open_regular(path) as file:
        if is_hollow(path):
            raise ValueError(HOLLOW)
        return hashlib.file_digest(file, "sha256").hexdigest()


def leads_out(path: Path, directory: Path) -> bool:
    """Whether `path` lies outside of `directory` after all links are resolved."""
    return not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(directory))


def is_hollow(path: Path) -> bool:
    """Whether almost all of a large file is a hole, which takes forever to read."""
    size = path.stat().st_size
    return size > MAY_BE_HOLES and written_bytes(path) < size // MAX_HOLES


def written_bytes(path: Path) -> int:
    """The number of bytes of a file outside its holes, which read as zeros and occupy no disk space."""
    total = end = 0
    with open_regular(path) as file:
        while True:
            try:
                start = os.lseek(file.fileno(), end, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:  # nothing but a hole follows
                    return total
                raise
            end = os.lseek(file.fileno(), start, os.SEEK_HOLE)
            total += end - start


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
