"""Prepares the environment before JAX is loaded: CPU devices, the compilation cache.

Compiled programs are cached in `$XDG_CACHE_HOME/motif_jax/compiled-<kind of machine>` (by default below `~/.cache`), at
most one gigabyte with LRU eviction. JAX's own environment variables take precedence: `JAX_COMPILATION_CACHE_DIR` (the
directory), `JAX_COMPILATION_CACHE_MAX_SIZE` (bytes) and `JAX_ENABLE_COMPILATION_CACHE=false`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import sys
from collections.abc import Mapping, MutableMapping
from pathlib import Path

CPU_DEVICES = "JAX_NUM_CPU_DEVICES"
MAX_BYTES = 2**30
LEAST_SECONDS = 0.5  # programs that compile faster are not cached


def divide_cpu(devices: int) -> None:
    """Makes JAX divide the CPU into this number of devices, unless the environment has a number.

    This has no effect if JAX is already loaded.
    """
    said = CPU_DEVICES in os.environ or "host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if devices > 1 and "jax" not in sys.modules and not said:
        os.environ[CPU_DEVICES] = str(devices)


def keep_compiled_programs(environment: MutableMapping[str, str]) -> None:
    """Sets the variables of JAX's compilation cache, unless the user has; call it before JAX is imported.

    Does nothing if the default directory is not writable.
    """
    if "JAX_COMPILATION_CACHE_DIR" in environment:
        return
    directory = cache_directory(environment, "compiled")
    with contextlib.suppress(OSError):
        directory.mkdir(parents=True, exist_ok=True)
    if not (directory.is_absolute() and os.access(directory, os.W_OK)):
        return
    environment["JAX_COMPILATION_CACHE_DIR"] = str(directory)
    environment.setdefault("JAX_COMPILATION_CACHE_MAX_SIZE", str(MAX_BYTES))
    environment.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", str(LEAST_SECONDS))


def cache_directory(environment: Mapping[str, str], kind: str) -> Path:
    """Where this kind of machine keeps what it has made for itself."""
    home = environment.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(home, "motif_jax", f"{kind}-{kind_of_machine()}")


def kind_of_machine() -> str:
    """A digest of the processor's features: machines with different ones may share a home directory."""
    with open("/proc/cpuinfo", errors="replace") as lines:
        features = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return hashlib.sha256(f"{platform.machine()} {features}".encode()).hexdigest()[:12]
