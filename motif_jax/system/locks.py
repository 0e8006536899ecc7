"""Files that are changed in place, of the stages that do not use `motif_jax.files` yet.

In a workdir that was unpacked from an archive, or that others can write to, such a file may be a symbolic link, a pipe
or a device. These are refused, so as not to write outside the workdir or wait for a pipe.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import IO, Any, Literal

from motif_jax.structs import UserError
from motif_jax.system.foreign import FILE_TYPES


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
