"""Caches the replies of servers on disk: a folder of JSON lines, which many jobs can write at the same time.

    <cache>/<name>-<hash>/about.json                              everything the lines depend on; the hash is of this
    <cache>/<name>-<hash>/<host>-<process>-<random>.jsonl         one file per job

Every job writes its own file, so jobs on several machines need no locks. Truncated and changed lines are skipped, and
their questions are asked again.
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

LONGEST_LINE = 2**22  # bytes; this program writes shorter lines, so longer ones are skipped
WRITE_EVERY_S = 1.0  # between two fsyncs


class SharedLines:
    """A folder of lines, with one file of this job."""

    def __init__(self, cache: Path, name: str, about: Mapping[str, Any], flag: str):
        """Derives the folder; `open` it before adding lines.

        `name`: the readable part of the folder's name. `about`: everything the lines depend on, as JSON.
        """
        key = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:16]
        self.folder = cache / f"{name}-{key}"
        self._about, self._flag = dict(about), flag
        self._file: BinaryIO | None = None
        self._new: list[str] = []
        self._written_s = time.monotonic()

    def open(self) -> None:
        """Creates the folder and this job's file."""
        name = f"{slug(socket.gethostname())}-{os.getpid()}-{secrets.token_hex(4)}.jsonl"
        with self._refusals():
            self.folder.mkdir(parents=True, exist_ok=True)
            write_json(self.folder / "about.json", self._about)
            self._file = open(self.folder / name, "xb")  # noqa: SIM115 - until close

    def add(self, entries: Iterable[Mapping[str, Any]], at_once: bool = False) -> None:
        """Adds lines. They are on disk when this returns if `at_once`, else after a `write` about a second later."""
        self._new += map(json_line, entries)
        self.write(at_once)

    def write(self, at_once: bool = False) -> None:
        """Writes and syncs the added lines, unless the last write was less than a second ago."""
        assert self._file is not None, "call open() first"
        now = time.monotonic()
        if self._new and (at_once or now - self._written_s > WRITE_EVERY_S):
            lines, self._new, self._written_s = self._new, [], now
            with self._refusals():
                self._file.write("".join(lines).encode())
                self._file.flush()
                os.fsync(self._file.fileno())

    def close(self) -> None:
        """Writes the remaining lines and closes the file; removes an empty file."""
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
    """Yields the intact lines of all jobs, in no particular order."""
    for file in sorted(path for path in folder.glob("*.jsonl") if path.is_file()):
        with contextlib.suppress(FileNotFoundError), open_regular(file) as lines:  # a job may delete its empty file
            for line in iter(functools.partial(lines.readline, LONGEST_LINE), b""):
                try:
                    entry = parse_json(line) if line.endswith(b"\n") else None  # a killed job leaves half a line
                except ValueError:
                    continue
                if entry is not None:
                    yield entry


def slug(text: str) -> str:
    """A file name made of the letters and digits of `text`, with hyphens and without dots."""
    return re.sub(r"[^a-z0-9]+", "-", Path(text).name.lower()).strip("-")[:48] or "unnamed"
