"""Files that are there whole or not at all."""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import secrets
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np

from motif_jax.config_table import record
from motif_jax.structs import UserError

# What NumPy raises at a head that is damaged.
NO_ARRAY = (ValueError, TypeError, SyntaxError, EOFError, OverflowError, MemoryError, tokenize.TokenError)


def write_whole(path: Path, write: Callable[[BinaryIO], Any]) -> None:
    """Writes beside `path` and renames, so that nobody ever reads half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_torn(path)
    temporary, file = _open_beside(path)
    try:
        with file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
            os.replace(temporary, path)
    except IsADirectoryError as error:
        raise UserError(f"{str(path)!r} is a directory, where a file is due: move it away (--workdir)") from error
    finally:
        temporary.unlink(missing_ok=True)


def _open_beside(path: Path) -> tuple[Path, BinaryIO]:
    """A new file beside `path`, with a lock that tells others that its writer lives."""
    while True:
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")  # also on a disk that machines share
        file = open(temporary, "xb")  # noqa: SIM115  (the caller closes it)
        with contextlib.suppress(OSError):  # of disks that know no locks
            fcntl.flock(file, fcntl.LOCK_EX)
        if os.fstat(file.fileno()).st_nlink:
            return temporary, file
        file.close()  # taken for torn before it was locked


def _remove_torn(path: Path) -> None:
    """Takes away what writers left who were killed before they could rename."""
    for other in path.parent.iterdir():
        if other.name.startswith(f".{path.name}.") and other.name.endswith(".tmp"):
            with contextlib.suppress(OSError), open(other, "r+b") as file:  # OSError: whoever writes it lives
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                other.unlink()


def write_json(path: Path, value: Any) -> None:
    """Writes `value` for people and programs alike. What is no number becomes null: JSON knows no NaN."""
    text = json.dumps(_finite(value), indent=2, sort_keys=True, default=_plain, allow_nan=False) + "\n"
    write_whole(path, lambda file: file.write(text.encode()))


def json_line(row: Any) -> str:
    """One line of JSON."""
    return json.dumps(_finite(row), default=_plain, allow_nan=False) + "\n"


def write_lines(path: Path, rows: Iterable[Any]) -> None:
    """Writes one line of JSON per row."""
    text = "".join(map(json_line, rows))
    write_whole(path, lambda file: file.write(text.encode()))


def write_config(directory: Path, config: Any) -> None:
    """Writes the resolved config (a `ConfigDict`) beside what it makes."""
    write_json(directory / "config.json", record(config.to_dict()))


def write_array(path: Path, array: np.ndarray) -> None:
    """Writes a `.npy` file."""
    write_whole(path, lambda file: np.save(file, array, allow_pickle=False))


def read_array(path: Path, mapped: Literal["", "r", "r+"] = "") -> np.ndarray:
    """Reads a `.npy` file and nothing else: no archive, no pickle.

    Args:
      path: the file.
      mapped: leave it on the disk, to be read (and, with "r+", written) where it is used.

    Returns:
      The array. What is none, or cut off, raises ValueError, with one line; what the system refuses, OSError.
    """
    try:
        if mapped:
            array = np.lib.format.open_memmap(path, mode="r")  # "r+" would make up for what was cut off, with zeros
            return array if mapped == "r" else np.lib.format.open_memmap(path, mode=mapped)
        with open(path, "rb") as file:
            return np.lib.format.read_array(file, allow_pickle=False)
    except NO_ARRAY as error:
        raise ValueError((str(error).splitlines() or ["it is no array"])[0]) from error


def read_arrays(path: Path, names: Iterable[str]) -> dict[str, np.ndarray]:
    """The same of an `.npz` file; its checksums tell whether the arrays are those that were written."""
    try:
        with zipfile.ZipFile(path) as archive:
            found = {}
            for name in names:
                with archive.open(f"{name}.npy") as file:
                    found[name] = np.lib.format.read_array(io.BytesIO(file.read()), allow_pickle=False)
            return found
    except (*NO_ARRAY, KeyError, RuntimeError, zipfile.BadZipFile, zlib.error, struct.error) as error:
        raise ValueError((str(error).splitlines() or ["it is no archive"])[0]) from error


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float | np.floating) and not np.isfinite(value):
        return None
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    return str(value)
