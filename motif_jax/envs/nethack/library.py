"""The library of NetHack that games load: the wheel's, or one that `launch/engine.sh` has built for this machine.

A built library is NLE's own sources, compiled for this processor with a profile of a player that has learnt. It plays
the same games bit for bit. It lies beside compiled programs, in `$XDG_CACHE_HOME/motif_jax/engine-<kind of machine>`,
with a record of what it was built from; one that is damaged, or built for another machine or NLE, is not loaded.
"""

from __future__ import annotations

import functools
import hashlib
import os
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from nle.nethack.nethack import DLPATH

from motif_jax.files import read_json
from motif_jax.system.jax_start import cache_directory, kind_of_machine

NAME, RECORD = "libnethack.so", "build.json"
RECIPE = 3  # the number of `launch/engine.sh` and of what it compiles; libraries of other numbers are built anew


class Library(NamedTuple):
    """The library that games load."""

    path: str
    description: str  # "" for the wheel's, where no library was built


WHEEL_LIBRARY = Library(DLPATH, "")


def directory() -> Path:
    """Returns the directory of this machine's library."""
    return cache_directory(os.environ, "engine")


def requirements() -> dict[str, Any]:
    """Returns what the record of a library must say, for the library to be loaded on this machine."""
    with open(DLPATH, "rb") as wheel:
        digest = hashlib.file_digest(wheel, "sha256").hexdigest()
    return {"nle": metadata.version("nle"), "wheel": digest, "machine": kind_of_machine(), "recipe": RECIPE}


@functools.cache
def find_library() -> Library:
    """Returns the built library, or else the wheel's."""
    folder = directory()
    if not (folder / RECORD).exists():
        return WHEEL_LIBRARY
    path = folder / NAME
    try:
        built = read_json(folder / RECORD)
        if other := [name for name, value in requirements().items() if built.get(name) != value]:
            raise ValueError(f"it was built for another {other[0]}")
        with open(path, "rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != built["sha256"]:
                raise ValueError("it is damaged")
    except (OSError, ValueError, KeyError) as error:
        why = f"NetHack plays with NLE's wheel; its library in {str(folder)!r} is not used: {error}"
        return Library(DLPATH, f"{why} (bash launch/engine.sh builds it anew)")
    return Library(str(path), f"NetHack plays with the library that was built for this machine, {path}")
