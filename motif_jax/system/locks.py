"""Lock files, and files that are changed in place.

In a workdir that was unpacked from an archive, or that others can write to, such a file may be a symbolic link, a pipe
or a device. These are refused, so as not to write outside the workdir or wait for a pipe.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Literal

from motif_jax.console import clean
from motif_jax.structs import UserError
from motif_jax.system.foreign import FILE_TYPES

NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)  # errors of file systems without locks
HOLDER = re.compile(rb"process \d+ on |\0*\Z")  # the start of a lock file
HOLDER_BYTES = 300  # fits any host name
_required = True  # False with --nolocks; global, because all threads and stages take locks


class Held(UserError):
    """Another process, described by `holder`, holds a lock in a folder."""

    def __init__(self, folder: Path, holder: str):
        super().__init__(f"another run ({holder}) is using {str(folder)!r} (--workdir)")
        self.holder = holder


class NoLocks(Exception):
    """The file system does not support locks; the message is the operating system's."""


def open_in_place(path: Path, mode: Literal["r+b", "a"], create: bool = False) -> IO[Any]:
    """Opens one of this program's files to change it or to append to it.

    UserError if it is a symbolic link, or not a regular file. Modes that truncate are not allowed: they would do so
    before the check. `create`: create a missing file; "a" always does.
    """
    more = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | (os.O_CREAT if create else 0)

    def open_checked(name: str, flags: int) -> int:
        try:
            file = os.open(name, flags | more, 0o666)
        except OSError as error:
            with contextlib.suppress(FileNotFoundError):
                _check_regular(path, os.lstat(name).st_mode, error)
            raise
        try:
            _check_regular(path, os.fstat(file).st_mode)
        except UserError:
            os.close(file)
            raise
        return file

    return open(path, mode, opener=open_checked)


def _check_regular(path: Path, mode: int, error: OSError | None = None) -> None:
    if not stat.S_ISREG(mode):
        kind = "a symbolic link" if stat.S_ISLNK(mode) else FILE_TYPES.get(stat.S_IFMT(mode), "something else")
        raise UserError(
            f"{str(path)!r} is {kind}, where this program keeps a file of its own: move it away (--workdir)"
        ) from error


def try_lock(file: IO[Any], shared: bool = False, wait: bool = False) -> bool:
    """Locks an open file until it is closed; the system also releases the lock when the process ends.

    `shared`: take a shared lock, which several processes can hold. `wait`: wait until the lock is free.

    Returns:
      True if the lock was taken, False if another process holds it. Raises NoLocks if locks are not supported.
    """
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in NO_LOCKS:
            raise NoLocks(error.strerror) from error
        raise
    return True


def take(path: Path, shared: bool = False, wait: bool = False) -> IO[bytes]:
    """Opens and locks a lock file, and writes process and host into it; closing the file releases the lock.

    Returns:
      The open file. Raises Held if another process holds the lock.
    """
    lock = open_in_place(path, "r+b", create=True)
    try:
        file = lock.fileno()
        try:
            taken = try_lock(lock, shared, wait)
        except NoLocks as error:
            if _required:
                raise UserError(
                    f"the file system of {str(path.parent)!r} has no locks ({error}), so that two runs cannot be kept "
                    "apart: choose another --workdir, or give --nolocks and see to it yourself that no second run "
                    "works there"
                ) from error
            taken = True
        before = os.pread(file, HOLDER_BYTES, 0)
        if not HOLDER.match(before):  # another program's file, or a hard link to one
            raise UserError(f"{str(path)!r} is not a lock file of this program: move it away (--workdir)")
        if not taken:
            holder = clean(before.rstrip(b"\0").decode(errors="replace"), 80) or "another process"
            raise Held(path.parent, holder)
        if os.fstat(file).st_nlink == 1:  # does not change a file with a hard link, as in a backup
            # Holders of a shared lock write concurrently, so the file must never be empty in between.
            os.ftruncate(file, os.pwrite(file, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0))
    except BaseException:
        lock.close()
        raise
    return lock


@contextlib.contextmanager
def going_without(allowed: bool) -> Iterator[None]:
    """Inside this context, if `allowed`, file systems without locks are accepted."""
    global _required
    before, _required = _required, not allowed
    try:
        yield
    finally:
        _required = before
