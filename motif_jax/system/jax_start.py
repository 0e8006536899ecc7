"""What must be done before JAX is loaded: a trial whether it can start, its devices of the CPU, its compilation cache.

XLA ends the whole process if it does not know a flag, and libraries do so if they cannot start their threads. JAX is
therefore tried in another process, but only if the environment has a setting that could be wrong.

Compiled programs are kept in `$XDG_CACHE_HOME/motif_jax/compiled-<kind of machine>` (by default below `~/.cache`), one
gigabyte at most; those that were unused for longest are removed first. JAX's own environment variables overrule this:
`JAX_COMPILATION_CACHE_DIR` sets another directory, `JAX_COMPILATION_CACHE_MAX_SIZE` the limit in bytes, and
`JAX_ENABLE_COMPILATION_CACHE=false` turns the cache off.
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

ADDRESSES_MIB = 2560  # address space of JAX's libraries, its compiler and a training
ADDRESSES_PER_CORE_MIB = 128  # stacks and heaps of its threads
PATIENCE_S = 120.0  # seconds; if the trial takes longer, the stage starts all the same
CPU_DEVICES = "JAX_NUM_CPU_DEVICES"
XLA = "from jaxlib import xla_client; xla_client.make_cpu_client()"  # reads XLA_FLAGS, without the rest of JAX
JAX = "import jax; jax.devices()"
HARMLESS = re.compile(
    r"JAX_(COMPILATION_CACHE|PERSISTENT_CACHE)_\w+=.*|JAX_PLATFORMS=(cpu)?|JAX_NUM_CPU_DEVICES=[1-9]\d{0,2}", re.DOTALL
)
FATAL = re.compile(r"^[EF]\d{4} .*?\] (.*)", re.MULTILINE)  # the start of the message with which XLA ends a process
MAX_BYTES = 2**30
LEAST_SECONDS = 0.5  # what is compiled in less time is not kept


def check_jax_starts() -> None:
    """Raises UserError where JAX cannot start with the environment and the limits that this process has."""
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
        if found:  # else it is not XLA that complains
            raise UserError(f"XLA refuses the variable XLA_FLAGS={flags!r}: {clean(found[1])}")
    settings = [f"{name}={value}" for name, value in os.environ.items() if name.startswith("JAX_")]
    settings = sorted(setting for setting in settings if not HARMLESS.fullmatch(setting))
    if settings and (output := _failed(JAX)):
        kind, _, reason = output.strip().splitlines()[-1].partition(": ")
        reason = clean(reason or ("there is no such device" if kind == "AssertionError" else kind))
        raise UserError(f"JAX does not start with {clean(' '.join(settings))} in the environment: {reason}")


def divide_cpu(devices: int) -> None:
    """Lets JAX make so many devices of the CPU when it is loaded, unless the environment says how many.

    Where JAX was loaded before, from Python, it has the devices that it has.
    """
    said = CPU_DEVICES in os.environ or "host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if devices > 1 and "jax" not in sys.modules and not said:
        os.environ[CPU_DEVICES] = str(devices)


def _failed(code: str) -> str:
    """Runs Python code in another process; what it wrote to standard error if it failed, otherwise nothing."""
    environment = os.environ | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    try:
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return ""
    return done.stderr.decode(errors="replace") or "it ended without a word" if done.returncode else ""


def keep_compiled_programs(environment: MutableMapping[str, str]) -> None:
    """Sets the variables of JAX's compilation cache, unless the user has; call it before JAX is imported.

    Changes nothing if the default directory cannot be written to.
    """
    if "JAX_COMPILATION_CACHE_DIR" in environment or (directory := default_directory(environment)) is None:
        return
    environment["JAX_COMPILATION_CACHE_DIR"] = str(directory)
    environment.setdefault("JAX_COMPILATION_CACHE_MAX_SIZE", str(MAX_BYTES))
    environment.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", str(LEAST_SECONDS))


def default_directory(environment: Mapping[str, str]) -> Path | None:
    """The directory for machines of this kind, made if it is missing; None where that is not possible."""
    home = environment.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    directory = Path(home, "motif_jax", f"compiled-{kind_of_machine()}")
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return directory if directory.is_absolute() and os.access(directory, os.W_OK) else None


def kind_of_machine() -> str:
    """A digest of the processor's features: a home directory may be shared by machines that differ in them."""
    try:
        with open("/proc/cpuinfo", errors="replace") as lines:
            features = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    except OSError:
        features = ""
    return hashlib.sha256(f"{platform.machine()} {features}".encode()).hexdigest()[:12]
