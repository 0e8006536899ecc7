"""Files that are there whole or not at all."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np


def write_whole(path: Path, write: Callable[[BinaryIO], Any]) -> None:
    """Writes beside `path` and renames, so that nobody ever reads half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")  # also on a disk that machines share
    try:
        with open(temporary, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


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
    write_json(directory / "config.json", json.loads(config.to_json()))


def write_array(path: Path, array: np.ndarray) -> None:
    """Writes a `.npy` file."""
    write_whole(path, lambda file: np.save(file, array, allow_pickle=False))


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
