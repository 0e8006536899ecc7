"""Patches to each copy of NLE's engine: its clock, and the memory of its code.

NLE loads one private copy of libnethack.so per game, because NetHack keeps its state in global variables. `patch`
changes two things. (1) The clock: shopkeepers' names depend on the time at which the game was started, so the same seed
would give another game five minutes later; `patch` sets that time. (2) The code: sixteen games have sixteen copies of
the same machine code, which evict each other from the processor's caches (a step takes twice as long with 32 games in a
process as with one). `patch` maps the code of every copy to the same pages of the file on disk.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import mmap
import os
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from nle.nethack import nethack
from nle.nethack.nethack import DLPATH, Nethack

from motif_jax.files import read_json
from motif_jax.system.foreign import sha256_of
from motif_jax.system.startup import cache_directory, kind_of_machine

WITH_ARTICLE, AS_IT_IS = 0, 2  # NetHack's formats of the killer's name
BY = {
    "DIED": "killed by", "CHOKING": "choked on", "POISONING": "poisoned by", "STARVING": "died of",
    "DROWNING": "drowned in", "BURNING": "burned by", "DISSOLVED": "dissolved in", "CRUSHING": "crushed to death by",
    "STONING": "petrified by", "TURNED_SLIME": "turned to slime by", "GENOCIDED": "killed by",
}  # fmt: skip
MAP_FIXED = 0x10


# Of each library: descriptor, offset of its code in the file, bytes of code before `nle_step`, size of the code
_codes: dict[str, tuple[int, int, int, int]] = {}


@contextlib.contextmanager
def loading(path: str) -> Iterator[None]:
    """Engines that are made here are copies of this library."""
    nethack.DLPATH = path
    try:
        yield
    finally:
        nethack.DLPATH = DLPATH


def patch(engine: Nethack, birthday: int, path: str = DLPATH) -> tuple[int | None, ...]:
    """Patches an engine; call it after each reset, which loads a fresh copy.

    `birthday`: start time of the game, in seconds since 1970. `path`: of the library that it is a copy of. Returns the
    addresses of its `nle_step` and of the two arguments that this takes.
    """
    with _library(engine) as library:
        ctypes.c_long.in_dll(library, "ubirthday").value = birthday % 2**31
        library.nle_get_obs.restype = ctypes.c_void_p
        step = ctypes.cast(library.nle_step, ctypes.c_void_p).value or 0
        _share_code(path, step)
        return step, ctypes.c_void_p.in_dll(library, "current_nle_ctx").value, library.nle_get_obs()


@functools.cache
def find_group(path: str) -> Any:
    """Returns `play_group` of a library (launch/engine/faster/group.c); None if it has none, as NLE's."""
    return None if path == DLPATH else getattr(ctypes.CDLL(path), "play_group", None)


TEXT = ctypes.c_char * 256


class _Killer(ctypes.Structure):
    _fields_ = [("next", ctypes.c_void_p), ("id", ctypes.c_int), ("format", ctypes.c_int), ("name", TEXT)]


def cause_of_death(engine: Nethack) -> str:
    """Returns the tombstone's text of a finished game, such as "killed by a jackal"."""
    with _library(engine) as library:
        killer = _Killer.in_dll(library, "killer")
        name, form = killer.name.decode("latin-1"), killer.format
    how = engine.how_done().name
    if not name:
        return how.lower().replace("_", " ")
    if form == AS_IT_IS or how not in BY:
        return name
    article = ("an " if name[0].lower() in "aeiou" else "a ") if form == WITH_ARTICLE else ""
    return f"{BY[how]} {article}{name}"


@contextlib.contextmanager
def _library(engine: Nethack) -> Iterator[ctypes.CDLL]:
    """Opens the engine's copy of NetHack; a handle left open would keep its state across resets."""
    library = ctypes.CDLL(engine.dlpath, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    try:
        yield library
    finally:
        _libc().dlclose(library._handle)


@functools.cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.dlclose.argtypes = [ctypes.c_void_p]
    return libc


def _share_code(path: str, step: int) -> None:
    """Maps the code of a new copy, whose `nle_step` is at this address, to the same pages of the library on disk."""
    if path not in _codes:
        for line in Path("/proc/self/maps").read_bytes().splitlines():  # a path need not be text
            span, _, offset, *_ = line.split()
            first, end = (int(address, 16) for address in span.split(b"-"))
            if first <= step < end:
                file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                _codes[path] = file, int(offset, 16), step - first, end - first
    file, offset_in_file, before, size = _codes[path]
    start, flags = step - before, mmap.MAP_PRIVATE | MAP_FIXED
    if _libc().mmap(start, size, mmap.PROT_READ | mmap.PROT_EXEC, flags, file, offset_in_file) != start:
        raise OSError(ctypes.get_errno(), "could not map the code of libnethack.so")


# The library of NetHack that games load: the wheel's, or one that `launch/engine.sh` has built for this machine.
#
# A built library is NLE's own sources, compiled for this processor with a profile of a player that has learnt. It plays
# the same games bit for bit. It lies beside compiled programs, in `$XDG_CACHE_HOME/motif_jax/engine-<kind of machine>`,
# with a record of what it was built from; one that is damaged, or built for another machine or NLE, is not loaded.

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
    versions = {"nle": metadata.version("nle"), "wheel": sha256_of(Path(DLPATH))}
    return versions | {"machine": kind_of_machine(), "recipe": RECIPE}


@functools.cache
def find_library() -> Library:
    """Returns the built library, or else the wheel's."""
    folder = directory()
    if not (folder / RECORD).exists():
        return WHEEL_LIBRARY
    path = folder / NAME
    try:
        built, wanted = read_json(folder / RECORD), requirements() | {"sha256": sha256_of(path)}
        wrong = [f"its record says another {name}" for name, value in wanted.items() if built.get(name) != value]
    except (OSError, ValueError) as error:
        wrong = [str(error)]
    if wrong:
        why = f"NetHack plays with NLE's wheel; its library in {str(folder)!r} is not used: {wrong[0]}"
        return Library(DLPATH, f"{why} (bash launch/engine.sh builds it anew)")
    return Library(str(path), f"NetHack plays with the library that was built for this machine, {path}")
