"""Describes the machine (processor, cores, memory, versions of libraries), without names of hosts or users."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

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
    limits = []
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                limits.append(int(line.split()[1]) // 1024)
        group = Path("/sys/fs/cgroup")
        limit = (group / "memory.max").read_text().strip()
        if limit != "max":
            used = int((group / "memory.current").read_text())
            for line in (group / "memory.stat").read_text().splitlines():
                if line.startswith("inactive_file "):  # page cache, which the kernel can reclaim
                    used -= int(line.split()[1])
            limits.append((int(limit) - used) // 2**20)
    except (OSError, ValueError):
        pass  # without control groups: the limits found so far are used
    return min(limits, default=2**30)


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
