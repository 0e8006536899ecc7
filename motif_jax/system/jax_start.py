"""Prepares the environment before JAX is loaded: a trial start, CPU devices, the compilation cache.

XLA aborts the process if it does not know a flag, and so do libraries that cannot start their threads. So JAX is first
tried in another process, but only if the environment has a setting that could be wrong.

Compiled programs are cached in `$XDG_CACHE_HOME/motif_jax/compiled-<kind of machine>` (by default below `~/.cache`), at
most one gigabyte with LRU eviction. JAX's own environment variables take precedence: `JAX_COMPILATION_CACHE_DIR` (the
directory), `JAX_COMPILATION_CACHE_MAX_SIZE` (bytes) and `JAX_ENABLE_COMPILATION_CACHE=false`.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import resource
import subprocess
import sys
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from motif_jax.console import clean
from motif_jax.structs import UserError
from motif_jax.system.machine import usable_cores

ADDRESSES_MIB = 2560  # address space of JAX's libraries, its compiler and a training run
ADDRESSES_PER_CORE_MIB = 128  # stacks and heaps of its threads
PATIENCE_S = 120.0  # if the trial takes longer, the stage starts anyway
CPU_DEVICES = "JAX_NUM_CPU_DEVICES"
XLA = "from jaxlib import xla_client; xla_client.make_cpu_client()"  # parses XLA_FLAGS without loading all of JAX
JAX = "import jax; jax.devices()"
HARMLESS = re.compile(
    r"JAX_(COMPILATION_CACHE|PERSISTENT_CACHE)_\w+=.*|JAX_DISABLE_MOST_OPTIMIZATIONS=[01]|JAX_PLATFORMS=(cpu)?"
    r"|JAX_NUM_CPU_DEVICES=[1-9]\d{0,2}",
    re.DOTALL,
)
FATAL = re.compile(r"^[EF]\d{4} .*?\] (.*)", re.MULTILINE)  # XLA's last message before it aborts
MAX_BYTES = 2**30
LEAST_SECONDS = 0.5  # programs that compile faster are not cached


def check_jax_starts() -> None:
    """Raises UserError if JAX cannot start with this process's environment and limits."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    needed = ADDRESSES_MIB + ADDRESSES_PER_CORE_MIB * usable_cores()
    if limit != resource.RLIM_INFINITY and limit < needed * 2**20:
        raise UserError(
            f"JAX takes about {needed:,} MiB of addresses on this machine, and this process may have "
            f"{limit // 2**20:,} (`ulimit -v unlimited`)"
        )
    if flags := os.environ.get("XLA_FLAGS"):
        output = _failed(XLA)
        found = FATAL.search(output)
        if found:  # otherwise the failure has another reason
            raise UserError(f"XLA refuses the variable XLA_FLAGS={flags!r}: {clean(found[1])}")
    settings = [f"{name}={value}" for name, value in os.environ.items() if name.startswith("JAX_")]
    settings = sorted(setting for setting in settings if not HARMLESS.fullmatch(setting))
    if settings and (output := _failed(JAX)):
        kind, _, reason = output.strip().splitlines()[-1].partition(": ")
        reason = clean(reason or ("there is no such device" if kind == "AssertionError" else kind))
        raise UserError(f"JAX does not start with {clean(' '.join(settings))} in the environment: {reason}")


def divide_cpu(devices: int) -> None:
    """Makes JAX divide the CPU into this number of devices, unless the environment has a number.

    This has no effect if JAX is already loaded.
    """
    said = CPU_DEVICES in os.environ or "host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if devices > 1 and "jax" not in sys.modules and not said:
        os.environ[CPU_DEVICES] = str(devices)


def _failed(code: str) -> str:
    """Runs Python code in another process; returns its standard error if it failed, otherwise ""."""
    environment = os.environ | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    try:
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return ""
    return done.stderr.decode(errors="replace") or "it exited without output" if done.returncode else ""


def keep_compiled_programs(environment: MutableMapping[str, str]) -> None:
    """Sets the variables of JAX's compilation cache, unless the user has; call it before JAX is imported.

    Does nothing if the default directory is not writable.
    """
    if "JAX_COMPILATION_CACHE_DIR" in environment or (directory := default_directory(environment)) is None:
        return
    environment["JAX_COMPILATION_CACHE_DIR"] = str(directory)
    environment.setdefault("JAX_COMPILATION_CACHE_MAX_SIZE", str(MAX_BYTES))
    environment.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", str(LEAST_SECONDS))


def default_directory(environment: Mapping[str, str]) -> Path | None:
    """The cache directory for this kind of machine, made if missing; None if it is not writable."""
    home = environment.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    directory = Path(home, "motif_jax", f"compiled-{kind_of_machine()}")
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return directory if directory.is_absolute() and os.access(directory, os.W_OK) else None


def kind_of_machine() -> str:
    """A digest of the processor's features: machines with different ones may share a home directory."""
    try:
        with open("/proc/cpuinfo", errors="replace") as lines:
            features = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    except OSError:
        features = ""
    return hashlib.sha256(f"{platform.machine()} {features}".encode()).hexdigest()[:12]
