"""Safe reading of files that others wrote: only regular files, and only up to a size limit.

Opening a named pipe waits for a writer, reading a device may never end, and a link may lead anywhere. So a file that a
user names, or that is in a directory of somebody else's, is checked before it is opened.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path

LIMIT = 16 * 2**20  # bytes of a text file, by far more than any that is read here
KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def check_regular(path: Path) -> None:
    """Raises OSError, with one line, where `path` is neither a regular file nor a link to one."""
    kind = stat.S_IFMT(os.stat(path).st_mode)
    if kind != stat.S_IFREG:
        raise OSError(errno.EINVAL, f"it is {KINDS.get(kind, 'something else')}, not a file", str(path))


def check_regular_tree(directory: Path) -> None:
    """Calls `check_regular` for every file below a directory; links to directories are not followed."""
    for folder, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # a dangling link, or a file that was just removed
                check_regular(Path(folder, name))


def read_text(path: Path) -> str:
    """Text of a file in UTF-8. Raises OSError if it cannot be read, ValueError if it is too long or not text."""
    return read_bytes(path, LIMIT).decode()


def read_bytes(path: Path, limit: int) -> bytes:
    """The bytes of a file; raises ValueError if there are more than `limit`."""
    check_regular(path)
    with open(path, "rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise ValueError(f"it has more than {limit:,} bytes")
    return data


def leads_out(path: Path, directory: Path) -> bool:
    """Whether a link on the way from `directory` to `path`, or at its end, leads out of the directory."""
    return not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(directory))


def written_bytes(path: Path) -> int:
    """Bytes of a file that were ever written; the rest are holes, which read as zeros and take no room on the disk."""
    total = end = 0
    with open(path, "rb") as file:
        while True:
            try:
                start = os.lseek(file.fileno(), end, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:  # nothing but a hole follows
                    return total
                raise
            end = os.lseek(file.fileno(), start, os.SEEK_HOLE)
            total += end - start
