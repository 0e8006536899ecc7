"""Reads and writes JSON with checksums, and arrays, for the stages that do not use `motif_jax.files` yet.

Every JSON object in a file or a line ends with a checksum of its contents. Reading raises ValueError if a disk, a copy
or an editor has changed the object; objects of `motif_jax.files` have no checksum.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from motif_jax.console import clean
from motif_jax.files import write_whole
from motif_jax.structs import UserError
from motif_jax.system.foreign import check_head, lines_of, open_regular, read_bytes

LAYOUT = 1  # version of the files in a workdir; raise it with every change by which older files would be misread
LAYOUT_KEY = "layout"  # its key in each config.json and in the facts of checkpoints
CHECKSUM = "checksum"  # the last key of an object
LARGEST_JSON = 2**28  # bytes of a file with one object; most have a few thousand
LARGEST_ARRAY = 2**34  # bytes of an array that is not mapped
# NumPy's exceptions for a damaged header.
NO_ARRAY = (ValueError, TypeError, SyntaxError, EOFError, OverflowError, MemoryError, tokenize.TokenError)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Writes `value` as indented JSON with a checksum; numbers that are not finite become null."""
    text = json.dumps(_sealed(value, sort_keys=True), indent=2) + "\n"
    write_whole(path, lambda file: file.write(text.encode()))


def json_line(row: Mapping[str, Any]) -> str:
    """One line of JSON with a checksum, newline included."""
    return json.dumps(_sealed(row)) + "\n"


def write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Writes one line of JSON per row."""
    text = "".join(map(json_line, rows))
    write_whole(path, lambda file: file.write(text.encode()))


def read_json(path: Path) -> dict[str, Any]:
    """Reads an object of `write_json`, without its checksum.

    Raises ValueError, with one line, if the file is not a JSON object or its checksum differs, and OSError if it cannot
    be read.
    """
    return parse_json(read_bytes(path, LARGEST_JSON))


def parse_json(text: bytes, sealed: bool = False) -> dict[str, Any]:
    """Parses the JSON object of a file or line, and checks its checksum; raises ValueError as `read_json` does.

    `sealed`: it must have one, as releases must.
    """
    content = parse_foreign_json(text)
    checksum = content.pop(CHECKSUM, None)
    if sealed and checksum is None:
        raise ValueError("its checksum is missing: it is not what was written there")
    try:
        if checksum in (None, _checksum(content)):
            return content
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    raise ValueError("its checksum differs: it is not what was written there")


def parse_foreign_json(text: bytes) -> dict[str, Any]:
    """Parses the JSON object of another program's file, without a checksum; raises ValueError, with one line."""
    try:
        found = json.loads(text.decode())
    except UnicodeDecodeError as error:
        raise ValueError("it is not a text") from error
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(found, dict):
        raise ValueError("it is not a JSON object")
    return found


def check_layout(facts: Mapping[str, Any], place: Path) -> None:
    """Raises UserError if a config.json, or the facts of a checkpoint, have another layout than LAYOUT."""
    if facts.get(LAYOUT_KEY) != LAYOUT:
        found = clean(str(facts.get(LAYOUT_KEY, "unknown")), 20)
        raise UserError(
            f"the layout of {str(place)!r} is {found}, and this version of motif_jax reads layout {LAYOUT}: use the "
            "version that made it, or choose another --workdir"
        )


def read_lines(path: Path, appended: bool = False) -> Iterator[dict[str, Any]]:
    """Yields the rows of a file of JSON lines; raises what `read_json` raises, with the number of the line.

    With `appended`, a truncated last line is left out: its writer is running, or was killed.
    """
    for number, line in enumerate(lines_of(path), 1):
        if appended and is_cut_off(line):
            return
        try:
            if not line.endswith(b"\n"):
                raise ValueError("its end is missing")
            row = parse_json(line)
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from error
        yield row


def is_cut_off(line: bytes) -> bool:
    """Whether a line is truncated. A complete object followed by anything but a newline is damaged instead."""
    if line.endswith(b"\n"):
        return False
    text = line.decode(errors="replace")
    try:
        return json.JSONDecoder().raw_decode(text)[1] == len(text)
    except (ValueError, RecursionError):
        return True


def _sealed(value: Mapping[str, Any], sort_keys: bool = False) -> dict[str, Any]:
    """`value` after a round trip through JSON, with its checksum as the last key."""
    assert CHECKSUM not in value, f"{CHECKSUM!r} is the key of the checksum"
    text = json.dumps(_finite(value), sort_keys=sort_keys, default=_plain, allow_nan=False)
    content = json.loads(text)
    return content | {CHECKSUM: _checksum(content)}


def _checksum(content: dict[str, Any]) -> str:
    """The checksum of an object, independent of spaces and of the order of keys."""
    return "sha256:" + hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def checkpoint_steps(directory: Path) -> list[int]:
    """The steps of the complete checkpoints in a directory, ascending; incomplete ones have other names."""
    names = os.listdir(directory) if os.path.isdir(directory) else ()  # False for a name that is too long
    return sorted(int(name) for name in names if name.isdecimal())


def write_config(directory: Path, config: Any) -> None:
    """Writes the resolved `ConfigDict` and the layout to `config.json` in the directory."""
    write_json(directory / "config.json", record(config.to_dict()) | {LAYOUT_KEY: LAYOUT})


def write_array(path: Path, array: np.ndarray) -> None:
    """Writes a `.npy` file."""
    write_whole(path, lambda file: np.save(file, array, allow_pickle=False))


def read_array(path: Path, mapped: Literal["", "r", "r+"] = "") -> np.ndarray:
    """Reads a `.npy` file, but not archives or pickles.

    `mapped`: "r" maps the file for reading, "r+" also for writing; "" reads all of it. Raises ValueError, with one
    line, if the file is not an array or is truncated, and OSError if it cannot be read.
    """
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            check_head(file, size)
            if not mapped:
                if size > LARGEST_ARRAY:
                    raise ValueError(f"it has more than {LARGEST_ARRAY:,} bytes")
                return np.lib.format.read_array(file, allow_pickle=False)
        array = np.lib.format.open_memmap(path, mode="r")  # "r+" would extend a truncated file with zeros
        if mapped == "r":
            return array
        return np.lib.format.open_memmap(path, mode=mapped)
    except NO_ARRAY as error:
        raise ValueError((str(error).splitlines() or ["it is not an array"])[0]) from error


def read_arrays(
    path: Path, names: Iterable[str] | None = None, optional: Iterable[str] = (), limit: int | None = None
) -> dict[str, np.ndarray]:
    """Reads arrays of an `.npz` file; raises ValueError if one is missing, damaged, or if they are too large.

    `names`: required arrays; None: all that are there. `limit`: bytes of all these arrays together; None: the size of
    the file, for one without compression.
    """
    try:
        with open_regular(path) as opened, zipfile.ZipFile(opened) as archive:
            limit = os.fstat(opened.fileno()).st_size if limit is None else limit
            there = set(archive.namelist())
            wanted = archive.infolist() if names is None else [archive.getinfo(f"{name}.npy") for name in names]
            wanted += [archive.getinfo(f"{name}.npy") for name in optional if f"{name}.npy" in there]
            if sum(member.file_size for member in wanted) > limit:
                raise ValueError(f"it unpacks to more than {limit:,} bytes")
            found = {}
            for member in wanted:
                data = archive.read(member)  # at most `file_size`
                file = io.BytesIO(data)
                check_head(file, len(data))
                found[member.filename.removesuffix(".npy")] = np.lib.format.read_array(file, allow_pickle=False)
            return found
    except (*NO_ARRAY, KeyError, RuntimeError, zipfile.BadZipFile, zlib.error, struct.error) as error:
        raise ValueError((str(error).splitlines() or ["it is not an archive"])[0]) from error


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


def record(tree: Any) -> Any:
    """Converts values to JSON without loss: infinite ones become "inf" and "-inf"."""
    if isinstance(tree, Mapping):
        return {str(name): record(item) for name, item in tree.items()}
    if isinstance(tree, list | tuple):
        return [record(item) for item in tree]
    return str(float(tree)) if isinstance(tree, float) and math.isinf(tree) else tree
