"""What NLE leaves to be mended in each copy of the engine: its clock, and the memory of its code.

NLE loads one private copy of libnethack.so per game, because NetHack keeps its state in global variables. Two things
follow. (1) The clock: shopkeepers are named after the moment at which the program was started, so the same seed would
be another game five minutes later; `mend` sets that moment. (2) The code: sixteen games are sixteen copies of the same
machine code, which push each other out of the processor's caches (a step takes twice as long with 32 games in a
process as with one). `mend` maps the code of every copy to the pages of the one file on disk: same bytes, one memory.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import struct
import sys
from typing import NamedTuple

from nle.nethack.nethack import DLPATH, Nethack

SUPPORTED = sys.platform == "linux"
MAP_FIXED = 0x10
PT_LOAD, PF_X = 1, 1


class _Code(NamedTuple):
    """The machine code of the library on disk."""

    file: int  # descriptor
    offset: int  # in the file, whole pages
    address: int  # relative to where the library is loaded, whole pages
    size: int


def mend(engine: Nethack, birthday: int) -> None:
    """To be called after each reset of `engine`, which loads a fresh copy. Does nothing where it is not Linux.

    Args:
      engine: a game that has just been reset.
      birthday: the second since 1970 at which the game shall believe it was started.
    """
    if not SUPPORTED:
        return
    library = ctypes.CDLL(engine.dlpath, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    try:
        ctypes.c_long.in_dll(library, "ubirthday").value = birthday % 2**31
        code = _shared_code()
        if code is not None:
            start = _load_address(library) + code.address
            flags = mmap.MAP_PRIVATE | MAP_FIXED
            mapped = _libc().mmap(start, code.size, mmap.PROT_READ | mmap.PROT_EXEC, flags, code.file, code.offset)
            if mapped != start:
                raise OSError(ctypes.get_errno(), "could not map the code of libnethack.so")
    finally:  # an open handle would keep the engine's state alive across its resets
        _libc().dlclose(library._handle)


@functools.cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.dlclose.argtypes = [ctypes.c_void_p]
    libc.dladdr.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    return libc


@functools.cache
def _shared_code() -> _Code | None:
    """Finds the code in the library's program headers; None if it is not a plain 64-bit ELF file."""
    file = os.open(DLPATH, os.O_RDONLY | os.O_CLOEXEC)
    header = os.pread(file, 64, 0)
    if header[:6] != b"\x7fELF\x02\x01":  # 64 bit, little endian
        os.close(file)
        return None
    table, entry_size, entries = struct.unpack_from("<Q14xHH", header, 32)
    page = mmap.PAGESIZE
    for number in range(entries):
        kind, flags, offset, address, _, size, _, _ = struct.unpack(
            "<IIQQQQQQ", os.pread(file, 56, table + number * entry_size)
        )
        if kind == PT_LOAD and flags & PF_X and offset % page == address % page:
            first = offset % page
            whole = -(-(size + first) // page) * page
            return _Code(file, offset - first, address - first, whole)
    os.close(file)
    return None


class _DlInfo(ctypes.Structure):
    _fields_ = [
        ("dli_fname", ctypes.c_char_p),
        ("dli_fbase", ctypes.c_void_p),
        ("dli_sname", ctypes.c_char_p),
        ("dli_saddr", ctypes.c_void_p),
    ]


def _load_address(library: ctypes.CDLL) -> int:
    info = _DlInfo()
    if not _libc().dladdr(ctypes.cast(library.nle_step, ctypes.c_void_p), ctypes.byref(info)):
        raise OSError("libnethack.so is not where it was loaded")
    return info.dli_fbase or 0
