"""Checks whether a compiled program fits into the memory of its device."""

from __future__ import annotations

from typing import Any, NamedTuple

from motif_jax.structs import UserError


class DeviceMemory(NamedTuple):
    """Memory of a device, in bytes."""

    limit: int  # for JAX
    free: int  # of the limit


def describe_memory(device: Any) -> DeviceMemory | None:
    """JAX's memory on a device; None if JAX does not know it, as on CPUs."""
    found = device.memory_stats() or {}
    if "bytes_limit" not in found:
        return None
    return DeviceMemory(found["bytes_limit"], found["bytes_limit"] - found.get("bytes_in_use", 0))


def needed_bytes(compiled: Any) -> int:
    """Bytes that a compiled program takes on a device beside its arguments; 0 if the compiler does not know."""
    found = compiled.memory_analysis()
    if found is None:
        return 0
    return int(found.temp_size_in_bytes + found.output_size_in_bytes - found.alias_size_in_bytes)


def check_fits(program: Any, arguments: tuple[Any, ...], device: Any, what: str, flags: str) -> None:
    """Raises UserError if a jitted program needs more memory than is free on a device; does nothing on CPUs.

    Args:
      program: compiled, but not called; a later call finds the compiled program in JAX's cache on disk.
      arguments: of the call, already on the device.
      device: one of the program's devices.
      what: the subject of the sentence.
      flags: flags that reduce the memory.
    """
    memory = describe_memory(device)
    if memory is None:
        return
    needed = needed_bytes(program.lower(*arguments).compile())
    if needed > memory.free:
        raise UserError(
            f"{what} needs {gib(needed)} of the memory of {device.device_kind}, but only {gib(memory.free)} of "
            f"{gib(memory.limit)} are free ({flags})"
        )


def gib(count: int) -> str:
    """Formats a number of bytes: 1610612736 -> "1.5 GiB"."""
    return f"{count / 2**30:,.1f} GiB" if count >= 2**30 / 10 else f"{count / 2**20:,.1f} MiB"
