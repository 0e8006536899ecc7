"""Finds and reads trained policies and rewards, in directories of checkpoints or in releases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from motif_jax.devices.checkpoints import find_checkpoints, reading
from motif_jax.devices.releases import find_release, is_release, read_release


def find_saved(path: Path, kind: str) -> Path:
    """The directory with a "policy" or a "reward": a release, or checkpoints at `path` or at the usual place below."""
    return find_release(path) or find_checkpoints(path, kind)


def read_saved(directory: Path, kind: str, which: str) -> tuple[int, Any, dict[str, Any]]:
    """Step, arrays and facts from the directory of `find_saved`; `which` is "last", "best" or a step."""
    if is_release(directory):
        return read_release(directory, kind, which)
    with reading(directory) as checkpoints:
        return checkpoints.readable(which)
