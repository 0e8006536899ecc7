"""Describes the machine (processor, cores, memory, versions of libraries), without names of hosts or users."""

from __future__ import annotations

import contextlib
import io
import os
import platform
import struct
import subprocess
import tokenize
import zipfile
import zlib
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.system.foreign import check_regular

LIBRARIES = ("motif_jax", "numpy", "nle", "jax", "flax", "optax")


def describe(device: str = "", devices: int = 0) -> dict[str, Any]:
    """A record of processor, memory, versions and commit, and of JAX's `device` and number of devices if given."""
    record: dict[str, Any] = {
        "processor": processor(),
        "cores": usable_cores(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": {name: metadata.version(name) for name in LIBRARIES if is_installed(name)},
    }
    if known := commit():
        record["commit"] = known
    return record | ({"device": device, "devices": devices} if device else {})


def commit(checkout: Path = Path(__file__).parents[2]) -> str:
    """The commit of the code, with "-dirty" if files have changed since; "" outside of a checkout."""
    if not (checkout / ".git").exists():  # the directory may lie within another project's checkout
        return ""
    command = ["git", "-C", str(checkout), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def usable_cores() -> int:
    """The number of cores that this process may use, which a cluster's job may limit."""
    return len(os.sched_getaffinity(0))


def available_mib() -> int:
    """Memory available to new processes, in MiB: the kernel's estimate, within the limits of the container."""
    limits, group = [2**30], Path("/sys/fs/cgroup")
    with contextlib.suppress(OSError, ValueError):  # without control groups: the limits found so far are used
        limits.append(_figure(Path("/proc/meminfo"), "MemAvailable:", 2**40) // 1024)
        limit = int((group / "memory.max").read_text())  # raises ValueError for "max"
        used = int((group / "memory.current").read_text())
        used -= _figure(group / "memory.stat", "inactive_file", 0)  # page cache, which the kernel can reclaim
        limits.append((limit - used) // 2**20)
    return min(limits)


def _figure(file: Path, name: str, otherwise: int) -> int:
    """The number behind a name at the start of a line; `otherwise` if there is no such line."""
    lines = map(str.split, file.read_text().splitlines())
    return next((int(number) for first, number, *_ in lines if first == name), otherwise)


def processor() -> str:
    """The processor's model; the architecture if the system does not report it."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def is_installed(library: str) -> bool:
    """Whether a library's version is known."""
    try:
        metadata.version(library)
    except metadata.PackageNotFoundError:
        return False
    return True


# ---- arrays in NumPy's formats from outside: an array, or one line about the file

# NumPy's exceptions for a damaged header; MemoryError: it claims more than there is.
NO_ARRAY = (ValueError, TypeError, SyntaxError, EOFError, OverflowError, MemoryError, tokenize.TokenError)


def read_array(path: Path, mapped: bool = False) -> np.ndarray:
    """Reads a `.npy` file, but not archives or pickles.

    `mapped`: maps the file for reading, instead of reading all of it. Raises ValueError, with one line, if the file is
    not an array or is truncated, and OSError if it cannot be read.
    """
    try:
        check_regular(path)
        array = np.lib.format.open_memmap(path, mode="r")  # which finds out whether all of it is there
        return array if mapped else np.array(array)
    except NO_ARRAY as error:
        raise ValueError((str(error).splitlines() or ["it is not an array"])[0]) from error


def read_arrays(path: Path, names: Iterable[str], optional: Iterable[str], limit: int) -> dict[str, np.ndarray]:
    """Reads arrays of an `.npz` file, of `limit` bytes in all; raises ValueError if one is missing or damaged."""
    try:
        check_regular(path)
        with zipfile.ZipFile(path) as archive:
            there = set(archive.namelist())
            wanted = [archive.getinfo(f"{name}.npy") for name in names]
            wanted += [archive.getinfo(f"{name}.npy") for name in optional if f"{name}.npy" in there]
            if sum(member.file_size for member in wanted) > limit:
                raise ValueError(f"it unpacks to more than {limit:,} bytes")
            files = {member.filename.removesuffix(".npy"): io.BytesIO(archive.read(member)) for member in wanted}
            return {name: np.lib.format.read_array(file, allow_pickle=False) for name, file in files.items()}
    except (*NO_ARRAY, KeyError, RuntimeError, zipfile.BadZipFile, zlib.error, struct.error) as error:
        raise ValueError((str(error).splitlines() or ["it is not an archive"])[0]) from error
