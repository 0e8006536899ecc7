"""Temporary folders, one per worker, and the removal of folders whose parent process was killed.

All users share the temporary directory, and workdirs may lie in it. So a folder is removed only if its name, its owner
and the content of its marker file show that this program made it. The parent holds a lock on the marker while it runs,
which is visible across containers.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import tempfile
from pathlib import Path

from motif_jax.structs import UserError
from motif_jax.system.locks import NoLocks, open_in_place, try_lock

NAME = re.compile(r"motif_jax-\d+-worker-[a-z0-9_]{8}")  # the parent's process, then the random part that mkdtemp adds
MARKER = ".motif_jax-worker-folder"
PURPOSE = "is a temporary folder of an actor worker of motif_jax, and is removed when its parent process has ended\n"


class WorkerFolder:
    """A folder for the temporary files of one worker."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=f"motif_jax-{os.getpid()}-worker-"))
        self._marker = open(self.path / MARKER, "xb")  # noqa: SIM115  (held while this object lives)
        with contextlib.suppress(NoLocks):  # others cannot lock it either, and so do not remove the folder
            try_lock(self._marker)
        self._marker.write(_marker_of(self.path))  # after the lock: this makes it a worker's folder for others
        self._marker.flush()

    def remove(self) -> None:
        """Removes the folder with its contents."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._marker.close()


def remove_stale_folders() -> None:
    """Removes the folders of workers whose parent was killed before it could clean up."""
    for folder in Path(tempfile.gettempdir()).glob("motif_jax-*-worker-*"):
        # OSError: another process has removed it. UserError: something else has the marker's name.
        if NAME.fullmatch(folder.name):
            with contextlib.suppress(OSError, UserError, NoLocks):
                _remove_if_stale(folder)


def _remove_if_stale(folder: Path) -> None:
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        return
    with open_in_place(folder / MARKER, "r+b") as marker:
        expected = _marker_of(folder)
        if marker.read(len(expected) + 1) == expected and try_lock(marker):
            shutil.rmtree(folder, ignore_errors=True)


def _marker_of(folder: Path) -> bytes:
    return f"{folder.name} {PURPOSE}".encode()
