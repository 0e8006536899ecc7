"""Turns errors of the operating system (a full disk, a missing permission, too little memory) into one clear sentence.

The context manager `explained` surrounds each stage. It catches such an error from any library, thread or process, and
raises a UserError with the flags to change: those for the place and the amount of writing, or for the use of memory.
Every other error is a bug, and keeps its traceback.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from motif_jax.console import OUTPUTS, clean
from motif_jax.structs import Stopped, UserError

PLACE, WRITES, MEMORY, DEVICE = range(4)  # kinds of remedies; `_remedy` names their flags
NO_DEVICE_MEMORY = -1  # an addition to the numbers of `errno`
USUAL = (errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.ELOOP)  # may be part of normal operation
REMEDIES = {  # by error number
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), (PLACE, WRITES)),
    errno.EFBIG: (WRITES,),
    **dict.fromkeys((errno.EROFS, errno.EIO, errno.ESTALE, *USUAL), (PLACE,)),
    **dict.fromkeys((errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EAGAIN), (MEMORY,)),  # EAGAIN: threads, processes
    NO_DEVICE_MEMORY: (DEVICE,),
}
LIMITS = {  # limits of this process by error number, and the command for each; mentioned if the limit is set
    errno.EFBIG: (resource.RLIMIT_FSIZE, "`ulimit -f`"),
    errno.ENOMEM: (resource.RLIMIT_AS, "`ulimit -v`"),
    errno.EAGAIN: (resource.RLIMIT_NPROC, "`ulimit -u`"),
    errno.EMFILE: (resource.RLIMIT_NOFILE, "`ulimit -n`"),
}
OF_LIBRARY = re.compile(r"os_error_code='(\d+)'")  # in messages of tensorstore, which orbax uses
FILE_OF_LIBRARY = re.compile(r"local file \"([^\"]+)\"")
OF_TEMPFILE = re.compile(r"/(tmp|motif_jax-)\w+")  # generated names of temporary files
OF_DEVICE = re.compile(r"RESOURCE_EXHAUSTED.*?memory.*?allocat\w* (\d[\d.]*) ?(bytes|B|KiB|MiB|GiB|TiB)\b", re.I)
OF_MEMORY = re.compile(r"cannot allocate memory|failed to map segment|out of memory", re.IGNORECASE)


class Limits(NamedTuple):
    """The flags that decide how much a stage needs."""

    disk: str  # the amount of writing, or places outside the workdir
    memory: str  # memory, processes and open files
    device_memory: str = ""  # "": those of `memory`


NO_LIMITS = Limits("", "")


class Refusal(NamedTuple):
    """An error of the operating system."""

    number: int  # as in `errno`, or NO_DEVICE_MEMORY
    words: str  # the message
    file: str  # "" if unknown


def find_refusal(error: BaseException) -> Refusal | None:
    """Finds the error of the operating system behind an exception; None if the exception is a bug."""
    seen: set[int] = set()
    links = [(error, True)]  # the exception, its causes (True) and contexts
    while links:
        link, is_cause = links.pop(0)
        if id(link) in seen:
            continue
        seen.add(id(link))
        refusal = _read(link)
        # A usual error, such as a missing file, may be handled when an unrelated exception is raised.
        if refusal and (is_cause or refusal.number in REMEDIES.keys() - USUAL):
            return refusal
        if isinstance(link, BaseExceptionGroup):
            links += [(inner, is_cause) for inner in link.exceptions]
        if link.__cause__ is not None:
            links.append((link.__cause__, is_cause))
        elif link.__context__ is not None and not link.__suppress_context__:
            links.append((link.__context__, False))
    return None


def is_about_the_file(error: BaseException) -> bool:
    """Whether a file's contents are to blame for an error in reading it, and not a lack of memory or permissions."""
    refusal = find_refusal(error)
    others = (errno.EACCES, errno.EPERM, errno.ESTALE)
    return refusal is None or not (refusal.number in others or {MEMORY, DEVICE} & {*REMEDIES.get(refusal.number, ())})


def _read(error: BaseException) -> Refusal | None:
    if isinstance(error, OSError) and error.errno is not None and type(error).__module__ == "builtins":
        file = error.filename if error.filename is not None else error.filename2
        file = "" if file is None else os.fsdecode(file) if isinstance(file, bytes) else str(file)  # or a descriptor
        return Refusal(error.errno, error.strerror or os.strerror(error.errno), file)
    text = str(error)
    first = text.partition("\n")[0]
    if isinstance(error, MemoryError):
        return Refusal(errno.ENOMEM, f"not enough memory{': ' * bool(first)}{first}", "")
    if isinstance(error, RuntimeError) and text.startswith("can't start new thread"):
        return Refusal(errno.EAGAIN, text, "")
    if isinstance(error, ValueError | RuntimeError) and (code := OF_LIBRARY.search(text)):
        file = FILE_OF_LIBRARY.search(text)
        return Refusal(int(code[1]), os.strerror(int(code[1])), file[1].rstrip("/") if file else "")
    if isinstance(error, RuntimeError) and (lacking := OF_DEVICE.search(first)):
        amount = in_words(float(lacking[1])) if lacking[2] == "bytes" else " ".join(lacking.groups())
        return Refusal(NO_DEVICE_MEMORY, f"the device has no memory left for another {amount}", "")
    if isinstance(error, ImportError | RuntimeError) and OF_MEMORY.search(first):  # of a device, too
        return Refusal(errno.ENOMEM, clean(first), "")
    return None


def in_words(count: float) -> str:
    """Formats a number of bytes: 1610612736 -> "1.5 GiB"."""
    units = ["bytes", "KiB", "MiB", "GiB", "TiB"]
    while count >= 1024 and len(units) > 1:
        count, units = count / 1024, units[1:]
    return f"{count:.3g} {units[0]}"


@contextlib.contextmanager
def explained(workdir: Path, stage: str = "", limits: Limits = NO_LIMITS) -> Iterator[None]:
    """Turns errors of the operating system inside the context into a UserError that names the flags to change."""
    who = f"{stage} cannot go on: " if stage else ""
    before = os.stat(workdir) if workdir.exists() else None
    try:
        yield
        # Missing parents of files are made again, so no error says it.
        if before and not (workdir.exists() and os.path.samestat(before, os.stat(workdir))):
            raise UserError(f"{who}the directory {str(workdir)!r} was removed or replaced meanwhile (--workdir)")
    except Exception as error:
        refusal = find_refusal(error)
        # `startup.run_program` explains those of the standard streams.
        if refusal is None or isinstance(error, UserError | Stopped) or refusal.file in OUTPUTS:
            raise
        if refusal.number in (errno.ENOSPC, errno.EDQUOT) and not refusal.file:  # it was about an open file
            places = [place for place in (workdir, _temporary()) if place.exists()]
            fullest = min(places, key=lambda place: shutil.disk_usage(place).free, default=workdir)
            refusal = refusal._replace(file=str(fullest))
        hint = _remedy(refusal, workdir, limits)
        if hint is None:
            raise
        words = f"{refusal.words} for {refusal.file!r}" if refusal.file else refusal.words
        raise UserError(who + words + (f" ({hint})" if hint else "")) from error


def _temporary() -> Path:
    return Path(os.environ.get("TMPDIR") or "/tmp")


def _is_below(file: str, folder: Path) -> bool:
    roots = {os.path.abspath(folder), os.path.realpath(folder)}
    return any(os.path.commonpath([os.path.abspath(file), root]) == root for root in roots)


def _remedy(refusal: Refusal, workdir: Path, limits: Limits) -> str | None:
    """The flags and limits to change, as text; None if the user cannot help."""
    number, file = refusal.number, refusal.file
    place = "--workdir" if not file or _is_below(file, workdir) or _is_below(str(workdir), Path(file)) else ""
    if not place and OF_TEMPFILE.search(file) and _is_below(file, _temporary()):
        place = "the variable TMPDIR"
    if number not in REMEDIES and not (file and place):
        return None
    names = {
        PLACE: place or limits.disk,
        WRITES: limits.disk,
        MEMORY: limits.memory,
        DEVICE: limits.device_memory or limits.memory,
    }
    words = [names[kind] for kind in REMEDIES.get(number, (PLACE,)) if names[kind]]
    limit = LIMITS.get(number)
    if limit and resource.getrlimit(limit[0])[0] != resource.RLIM_INFINITY:
        words.append(limit[1])
    return ", ".join(dict.fromkeys(words))
