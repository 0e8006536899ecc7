"""Keeps what servers have said on disk: a folder of JSON lines, which many jobs write at the same time.

    <cache>/<name>-<hash>/about.json                              what the lines depend on, of which the hash is made
    <cache>/<name>-<hash>/<host>-<process>-<random>.jsonl         one file per job

Every job writes to a file of its own, so that jobs on several machines need no locks. A line that was cut off or
changed is not read, and what it said is asked again.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import re
import secrets
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from motif_jax.structs import UserError
from motif_jax.system.files import json_line, parse_json, write_json
from motif_jax.system.foreign import open_regular

LONGEST_LINE = 2**22  # bytes; longer lines were not written by this program and are skipped, piece by piece
WRITE_EVERY_S = 1.0  # each time, the file is forced to disk


class SharedLines:
    """A folder of lines, and the file of this job in it."""

    def __init__(self, cache: Path, name: str, about: Mapping[str, Any], flag: str):
        """Derives the folder; `open` it before lines are added.

        Args:
          cache: where all such folders are.
          name: of the folder, for people.
          about: what the lines depend on, as JSON.
          flag: the value of the config that names `cache`, for messages.
        """
        key = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:16]
        self.folder = cache / f"{name}-{key}"
        self._about, self._flag = dict(about), flag
        self._file: BinaryIO | None = None
        self._new: list[str] = []
        self._written_s = time.monotonic()

    def open(self) -> None:
        """Makes the file of this job."""
        name = f"{slug(socket.gethostname())}-{os.getpid()}-{secrets.token_hex(4)}.jsonl"
        with self._refusals():
            self.folder.mkdir(parents=True, exist_ok=True)
            write_json(self.folder / "about.json", self._about)
            self._file = open(self.folder / name, "xb")  # noqa: SIM115 - until close

    def add(self, entries: Iterable[Mapping[str, Any]], at_once: bool = False) -> None:
        """Adds lines; they are on disk after a `write` about a second later, or when this returns if `at_once`."""
        self._new += map(json_line, entries)
        self.write(at_once)

    def write(self, at_once: bool = False) -> None:
        """Forces what was added to disk, unless something was written within the last second."""
        assert self._file is not None, "it is not open"
        now = time.monotonic()
        if self._new and (at_once or now - self._written_s > WRITE_EVERY_S):
            lines, self._new, self._written_s = self._new, [], now
            with self._refusals():
                self._file.write("".join(lines).encode())
                self._file.flush()
                os.fsync(self._file.fileno())

    def close(self) -> None:
        """Writes what is left and closes the file; removes it if nothing was added."""
        if self._file is not None:
            try:
                self.write(at_once=True)
            finally:
                file, self._file = self._file, None
                with self._refusals():
                    empty = file.tell() == 0
                    file.close()
                    if empty:
                        Path(file.name).unlink(missing_ok=True)

    @contextlib.contextmanager
    def _refusals(self) -> Iterator[None]:
        """Turns errors of the file system into a UserError."""
        try:
            yield
        except OSError as error:
            raise UserError(f"cannot write answers to {str(self.folder)!r}: {error.strerror} ({self._flag})") from error


def read_entries(folder: Path) -> Iterator[dict[str, Any]]:
    """The lines of all jobs that are JSON objects as they were written, in no particular order."""
    for file in sorted(path for path in folder.glob("*.jsonl") if path.is_file()):
        with contextlib.suppress(FileNotFoundError), open_regular(file) as lines:  # a job may delete its empty file
            for line in iter(functools.partial(lines.readline, LONGEST_LINE), b""):
                try:
                    entry = parse_json(line) if line.endswith(b"\n") else None  # else a job was killed in the middle
                except ValueError:
                    continue
                if entry is not None:
                    yield entry


def slug(text: str) -> str:
    """A file name made of the letters and digits of `text`, with hyphens and without dots."""
    return re.sub(r"[^a-z0-9]+", "-", Path(text).name.lower()).strip("-")[:48] or "unnamed"
