"""Where JAX keeps the programs that it has compiled, so that the next run on this machine does not compile them again.

They are in `$XDG_CACHE_HOME/motif_jax/compiled-<kind of machine>` (by default below `~/.cache`), one gigabyte at most:
what was not used for longest is removed first. JAX's own environment variables overrule this: with
`JAX_COMPILATION_CACHE_DIR` they are stored elsewhere, `JAX_COMPILATION_CACHE_MAX_SIZE` changes the limit in bytes, and
`JAX_ENABLE_COMPILATION_CACHE=false` turns all of it off.
"""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Mapping, MutableMapping
from pathlib import Path

MAX_BYTES = 2**30
LEAST_SECONDS = 0.5  # what is compiled in less time is not kept


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
