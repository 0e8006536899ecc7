"""Lines of JSON that many jobs write at the same time, on network file systems too: each job has a file of its own.

<cache>/<name>-<hash>/about.json                        everything the lines depend on; the hash is of this
<cache>/<name>-<hash>/<host>-<process>-<random>.jsonl   the lines of one job
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from motif_jax.files import LineFile, read_lines, write_json
from motif_jax.structs import UserError

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
            try:
                with self._refusals():
                    file.add((), sync=True)
            finally:
                file.close()

    @contextlib.contextmanager
    def _refusals(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UserError(f"cannot write answers to {str(self.folder)!r}: {error.strerror} ({self._flag})") from error


def read_shared(folder: Path) -> Iterator[dict[str, Any]]:
    """Yields the lines of all jobs, in no particular order."""
    for file in sorted(folder.glob("*.jsonl")):
        with contextlib.suppress(FileNotFoundError):  # a job of version 0.1 removes its file if it has no answer
            yield from read_lines(file)


def slug(text: str) -> str:
    """A file name made of the letters and digits of `text`, with hyphens and without dots."""
    return re.sub(r"[^a-z0-9]+", "-", Path(text).name.lower()).strip("-")[:48] or "unnamed"
