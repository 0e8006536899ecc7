"""Files of a workdir: written whole, appended to line by line, and locked. Does not load JAX; workers import it.

What this program wrote is trusted: it is read with json, and fails with json's error. Only kills leave traces: a file
is written under a temporary name and renamed, and a torn last line is cut.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import hashlib
import json
import math
import os
import re
import secrets
import shutil
import socket
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np

from motif_jax.console import clean
from motif_jax.structs import UserError

LONGEST = 255  # bytes of a name, the limit of file systems
LAYOUT = 2  # version of the files in a workdir; raise it with every change by which older files would be misread
LAYOUT_KEY = "layout"  # the key of a version in each config.json and in the facts of checkpoints
NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)  # errors of file systems without locks
PLAIN = (str, int, bool, type(None))  # types of values that JSON has as they are
HOLDER_BYTES = 300  # fits any host name
_required = True  # False with --nolocks; global, because all threads and stages take locks


# ---- whole files


def short_name(text: str, longest: int = LONGEST) -> str:
    """A name of a file: the text itself; a longer one is cut and ends with a hash of all of it."""
    data = os.fsencode(text)
    if len(data) <= longest:
        return text
    return f"{data[: longest - 17].decode(errors='ignore')}-{hashlib.sha256(data).hexdigest()[:16]}"


def check_place(folder: Path, flag: str) -> None:
    """Raises UserError if nothing can be written into a directory, which need not exist yet."""
    for place in (folder.absolute(), *folder.absolute().parents):
        if os.path.lexists(place):  # the directories below it would be made
            if not (os.path.isdir(place) and os.access(place, os.W_OK | os.X_OK)):
                what = "cannot be written" if os.path.isdir(place) else "is not a directory"
                raise UserError(f"nothing can be written into {str(folder)!r}: {str(place)!r} {what} ({flag})")
            return


def write_whole(path: Path, content: str | bytes | Callable[[BinaryIO], Any]) -> None:
    """Writes a temporary file beside `path`, or calls `content` with it, and renames it: `path` is always complete."""
    if isinstance(content, str):
        content = content.encode("utf-8", "replace")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary, file = _open_beside(path)
    try:
        with file:
            content(file) if callable(content) else file.write(content)
            file.flush()
            os.fsync(file.fileno())
            os.replace(temporary, path)
    except OSError as error:
        error.filename = error.filename or str(path)  # errors about open files do not name them
        raise
    finally:
        temporary.unlink(missing_ok=True)


def _open_beside(path: Path) -> tuple[Path, BinaryIO]:
    """Makes a temporary file beside `path`, locked as long as its writer runs; deletes those of killed writers."""
    start = f".{short_name(path.name, LONGEST - 18)}."
    for other in path.parent.iterdir():
        if other.name.startswith(start) and other.name.endswith(".tmp"):
            # OSError: its writer has just renamed it.
            with contextlib.suppress(OSError, NoLocks), open(other, "r+b") as torn:
                if try_lock(torn):
                    other.unlink()
    while True:
        temporary = path.with_name(f"{start}{secrets.token_hex(6)}.tmp")  # unique even on a shared disk
        file = open(temporary, "xb")  # noqa: SIM115  (the caller closes it)
        with contextlib.suppress(NoLocks):  # others cannot lock it either, and so do not remove it
            try_lock(file, wait=True)
        if os.fstat(file.fileno()).st_nlink:
            return temporary, file
        file.close()  # another process removed it before it was locked


# ---- directories


def remove_folder(folder: Path) -> None:
    """Removes a directory and all below it, if it exists; of links, only the link."""
    if folder.is_symlink():
        folder.unlink()
    elif folder.exists():
        shutil.rmtree(folder)


def make_anew(folder: Path) -> None:
    """Makes an empty directory in place of an existing one."""
    remove_folder(folder)
    folder.mkdir(parents=True)


# ---- arrays


def write_array(path: Path, array: np.ndarray) -> None:
    """Writes a `.npy` file."""
    write_whole(path, lambda file: np.save(file, array, allow_pickle=False))


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes a compressed `.npz` file; NumPy's own level of compression takes several times as long."""

    def write(file: BinaryIO) -> None:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            for name, array in arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)

    write_whole(path, write)


# ---- JSON


def to_plain(value: Any, infinite: bool = True) -> Any:
    """A value as JSON has it: NaN is null, infinite numbers are text or, without `infinite`, null as well."""
    kind = type(value)
    if kind in PLAIN or (kind is float and math.isfinite(value)):
        return value
    if kind is list:  # these first, as lines are written by the hundred thousand
        return [to_plain(item, infinite) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        plain = {one.name: to_plain(getattr(value, one.name), infinite) for one in dataclasses.fields(value)}
        for one in dataclasses.fields(value):
            if "sections" in one.metadata:  # `config.table.sections`: they stand beside the other fields
                plain |= plain.pop(one.name)
        return plain
    if isinstance(value, Mapping):
        return {str(name): to_plain(item, infinite) for name, item in value.items()}
    if hasattr(value, "_asdict"):
        return to_plain(value._asdict(), infinite)
    if isinstance(value, list | tuple):
        return [to_plain(item, infinite) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        return to_plain(value.tolist(), infinite)
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) or not infinite else str(value)
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def write_json(path: Path, value: Any) -> None:
    """Writes a value of `to_plain` as indented JSON; numbers that are not finite become null."""
    text = json.dumps(to_plain(value, infinite=False), indent=2, sort_keys=True, allow_nan=False) + "\n"
    write_whole(path, text.encode())


def read_json(path: Path) -> dict[str, Any]:
    """Reads an object."""
    content: dict[str, Any] = json.loads(path.read_bytes())
    return content


def json_line(row: Mapping[str, Any]) -> str:
    """One line of JSON, newline included; numbers that are not finite become null."""
    return json.dumps(to_plain(row, infinite=False)) + "\n"


def write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Writes one line of JSON per row."""
    write_whole(path, "".join(map(json_line, rows)).encode())


class LineFile:
    """A file of JSON lines that one process appends to."""

    def __init__(self, path: Path):
        """Opens or creates the file, and cuts the torn line of a killed writer."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = open(path, "ab+")  # noqa: SIM115  (until close)
        self._file.truncate(_whole_bytes(self._file))

    def add(self, rows: Iterable[Mapping[str, Any]], sync: bool = False) -> None:
        """Appends rows, which another process can read when this returns; with `sync`, they are on the disk."""
        self._file.write("".join(map(json_line, rows)).encode())
        self._file.flush()
        if sync:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


def _whole_bytes(file: BinaryIO) -> int:
    end = file.seek(0, os.SEEK_END)
    while end:
        start = max(end - 2**16, 0)
        file.seek(start)
        if (position := file.read(end - start).rfind(b"\n")) >= 0:
            return start + position + 1
        end = start
    return 0


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yields the rows of a file of JSON lines; a torn last line, whose writer runs or was killed, is left out."""
    with open(path, "rb") as lines:
        yield from (json.loads(line) for line in lines if line.endswith(b"\n"))


def keep_lines(path: Path, key: str, last: float) -> None:
    """Removes the rows whose `key` exceeds `last`: those after the checkpoint from which training resumes."""
    if path.exists():
        write_lines(path, [row for row in read_lines(path) if row[key] <= last])


# ---- lines of JSON that many jobs write at the same time, on network file systems too: each job has a file of its own
#
# <cache>/<name>-<hash>/about.json                        everything the lines depend on; the hash is of this
# <cache>/<name>-<hash>/<host>-<process>-<random>.jsonl   the lines of one job

SYNC_EVERY_S = 1.0


class SharedLines:
    """A folder of lines, to which this job appends."""

    def __init__(self, cache: Path, name: str, about: Mapping[str, Any], flag: str):
        """Derives the folder from a readable `name` and all that the lines depend on; `flag` is that of `cache`."""
        key = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:16]
        self.folder = cache / f"{name}-{key}"
        self._about, self._flag = dict(about), flag
        self._file: LineFile | None = None
        self._synced_s = 0.0

    def open(self) -> None:
        """Creates the folder, which shows that it can be written before anything is asked."""
        with self._refusals():
            self.folder.mkdir(parents=True, exist_ok=True)
            write_json(self.folder / "about.json", self._about)

    def add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Appends rows: other processes can read them now, and about a second later they survive a power failure."""
        now = time.monotonic()
        sync = now - self._synced_s > SYNC_EVERY_S
        with self._refusals():
            if self._file is None:
                name = f"{slug(socket.gethostname())}-{os.getpid()}-{secrets.token_hex(4)}.jsonl"
                self._file = LineFile(self.folder / name)
            self._file.add(rows, sync)
        self._synced_s = now if sync else self._synced_s

    def close(self) -> None:
        """Syncs and closes the file; `add` may open another one."""
        if self._file is not None:
            file, self._file = self._file, None
            with contextlib.closing(file), self._refusals():
                file.add((), sync=True)

    @contextlib.contextmanager
    def _refusals(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UserError(f"cannot write answers to {str(self.folder)!r}: {error.strerror} ({self._flag})") from error


def read_shared(folder: Path) -> Iterator[dict[str, Any]]:
    """Yields the lines of all jobs, in no particular order."""
    for file in sorted(folder.glob("*.jsonl")):
        yield from read_lines(file)


def slug(text: str) -> str:
    """A file name made of the letters and digits of `text`, with hyphens and without dots."""
    return re.sub(r"[^a-z0-9]+", "-", Path(text).name.lower()).strip("-")[:48] or "unnamed"


# ---- a workdir


def check_layout(facts: Mapping[str, Any], place: Path, layout: int = LAYOUT) -> None:
    """Raises UserError if a config.json, or the facts of a checkpoint, have another layout than this one."""
    if facts.get(LAYOUT_KEY) != layout:
        version = clean(str(facts.get(LAYOUT_KEY, "unknown")), 20)
        raise UserError(
            f"the layout of {str(place)!r} is {version}, and this version of motif_jax reads layout {layout}: use the "
            "version that made it, or choose another --workdir"
        )


def checkpoint_steps(directory: Path) -> list[int]:
    """The steps of the complete checkpoints in a directory, ascending; incomplete ones have other names."""
    names = os.listdir(directory) if os.path.isdir(directory) else ()  # False for a name that is too long
    return sorted(int(name) for name in names if name.isdecimal())


def write_config(directory: Path, config: Any) -> None:
    """Writes the values of the config and the layout to `config.json` in the directory."""
    write_json(directory / "config.json", to_plain(config) | {LAYOUT_KEY: LAYOUT})


# ---- the lock


class Held(UserError):
    """Another process, described by `holder`, holds a lock in a folder."""

    def __init__(self, folder: Path, holder: str):
        super().__init__(f"another run ({holder}) is using {str(folder)!r} (--workdir)")
        self.holder = holder


class NoLocks(Exception):
    """The file system does not support locks; the message is the operating system's."""


def try_lock(file: IO[Any], shared: bool = False, wait: bool = False) -> bool:
    """Locks an open file until it is closed or the process ends; False if another process holds the lock.

    `shared`: a lock that several processes can hold. `wait`: until it is free. Raises NoLocks where there are none.
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
    """Opens and locks a file, and writes process and host into it; closing it releases the lock. Raises Held."""
    lock = open(path, "r+b", opener=lambda name, flags: os.open(name, flags | os.O_CREAT, 0o666))  # noqa: SIM115
    try:
        try:
            if not try_lock(lock, shared, wait):
                before = os.pread(lock.fileno(), HOLDER_BYTES, 0).decode(errors="replace")
                raise Held(path.parent, clean(before.strip("\0"), 80) or "another process")
        except NoLocks as error:
            if _required:
                raise UserError(
                    f"the file system of {str(path.parent)!r} has no locks ({error}), so that two runs cannot be kept "
                    "apart: choose another --workdir, or give --nolocks and see to it yourself that no second run "
                    "works there"
                ) from error
        # By the same descriptor: closing another one would release the lock on NFS. Holders of a shared lock write at
        # the same time, so the file must never be empty in between.
        holder = f"process {os.getpid()} on {socket.gethostname()}".encode()
        os.ftruncate(lock.fileno(), os.pwrite(lock.fileno(), holder, 0))
    except BaseException:
        lock.close()
        raise
    return lock


def require_locks(required: bool) -> None:
    """Sets whether file systems without locks are refused, for the whole process."""
    global _required
    _required = required
