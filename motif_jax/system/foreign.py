"""Reading of files from outside, within limits of their size."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO

from motif_jax.structs import legible

LIMIT = 16 * 2**20  # bytes of a text file
LONGEST_LINE = 2**24  # bytes of a line of JSON; the rows of metrics have a few thousand


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


def open_regular(path: Path) -> BinaryIO:
    """Opens a file for reading; see `check_regular`."""
    check_regular(path)
    return open(path, "rb")


def check_regular(path: Path) -> None:
    """Raises ValueError for a pipe, a device or one large hole, which take forever; OSError if it is missing."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise ValueError("it is not a regular file")
    if status.st_size > 2**20 and status.st_blocks * 512 < status.st_size // 1000:  # file systems may compress
        raise ValueError("almost all of it is a hole (a sparse file): it was not copied completely")


def check_readable(path: Path, flag: str) -> None:
    """Raises UserError, which names `flag`, for anything but a regular file that can be opened."""
    with legible(repr(str(path)), flag):
        check_regular(path)
        open(path, "rb").close()


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal; raises ValueError for what is no regular file."""
    check_regular(path)
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def leads_out(path: Path, directory: Path) -> bool:
    """Whether `path` lies outside of `directory` after all links are resolved."""
    return not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(directory))


def parse_foreign_json(text: bytes) -> dict[str, Any]:
    """Parses the JSON object of another program's file, without a checksum; raises ValueError, with one line."""
    try:
        content = json.loads(text.decode())
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(content, dict):
        raise ValueError("it is not a JSON object")
    return content
