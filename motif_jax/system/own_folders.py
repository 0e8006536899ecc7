"""Directories that this program makes below a workdir: checks before writing to them and before removing them.

A workdir may be a link, so that an experiment can lie on any disk. Links to directories below a workdir are followed
for reading only: they may lead to foreign directories.

A directory that is replaced or removed as a whole has a marker from the start. It is removed only if it has the marker,
and if this program could have given all names in it.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

from motif_jax.console import clean
from motif_jax.structs import UserError
from motif_jax.system.files import read_json, write_json

MARKER = ".motif_jax.json"
TEMPORARY = re.compile(r"(.*/|)\.([^/]+)\.[0-9a-f]{12}\.tmp")  # a leftover of a killed `write_whole`: folder, name


def check_no_links(workdir: Path, folders: Iterable[str]) -> None:
    """Raises UserError if one of these folders of a workdir, or a folder below them, is a link."""
    for folder in folders:
        path = workdir
        for part in Path(folder).parts:
            path /= part
            _check_no_link(path)
        for place, inner, _ in os.walk(path):
            for name in inner:
                _check_no_link(Path(place, name))


def _check_no_link(path: Path) -> None:
    if path.is_symlink() and (path.is_dir() or not path.exists()):
        raise UserError(
            f"{str(path)!r} is a link to {os.path.realpath(path)!r}, and nothing is written through a link in a "
            "workdir: put the directory itself there, or make the whole workdir a link (--workdir)"
        )


def check_made(folder: Path, names: str) -> None:
    """Raises UserError if `folder` exists and this program may not remove it.

    `names` is a regular expression for the paths of its files, relative to `folder`.
    """
    if not os.path.lexists(folder):
        return
    if folder.is_symlink() or not folder.is_dir():
        raise UserError(f"{str(folder)!r} is not a directory that this program has made: move it away (--workdir)")
    found = [
        TEMPORARY.sub(r"\1\2", str(Path(place, name).relative_to(folder)))
        for place, inner, files in os.walk(folder)
        for name in (*files, *(name for name in inner if os.path.islink(Path(place, name))))
    ]
    found = [name for name in found if name != MARKER]
    if strange := [name for name in found if not re.fullmatch(names, name)]:
        raise UserError(
            f"{str(folder)!r} is to be replaced, but {clean(strange[0], 80)!r} in it has a name that this program "
            "does not give: move it away (--workdir)"
        )
    if found and not _is_marked(folder):
        raise UserError(f"{str(folder)!r} has no marker of this program: move it away (--workdir)")


def remove_made(folder: Path, names: str) -> None:
    """Removes a folder if it exists; raises UserError as `check_made` does."""
    check_made(folder, names)
    if not folder.exists():
        return
    _mark(folder)
    for entry in folder.iterdir():
        if entry.name != MARKER:
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    (folder / MARKER).unlink()  # last, so that a killed process leaves it
    folder.rmdir()


def make_anew(folder: Path, names: str) -> None:
    """Makes an empty folder with a marker, and removes an existing one; raises UserError as `check_made` does."""
    remove_made(folder, names)
    _mark(folder)


def _is_marked(folder: Path) -> bool:
    try:
        read_json(folder / MARKER)
        return True
    except (OSError, ValueError):
        return False


def _mark(folder: Path) -> None:
    write_json(folder / MARKER, {"made_by": "motif_jax"})
