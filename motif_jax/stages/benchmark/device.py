"""Rows about the device itself: how busy it is, its share of the vendor's figure, and the memory of an update."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import jax

from motif_jax.devices.memory import describe_memory
from motif_jax.stages.benchmark.peaks import vendor_peak
from motif_jax.stages.benchmark.rows import Row, say
from motif_jax.stages.benchmark.watch import Usage, Watch, describe_gpus

LIBRARIES = ("jax", "jaxlib")


class Measured(Protocol):
    """What is measured of a network's training; `policy.Training`."""

    dtype: str
    devices: int

    def update_memory(self) -> int: ...  # bytes that an update takes beside its arguments; 0: not known


def is_accelerated() -> bool:
    """Whether JAX computes on something else than a CPU."""
    return jax.default_backend() != "cpu"


def describe_device() -> dict[str, Any]:
    """Kind and number of JAX's devices, versions, and what the driver says of the GPUs."""
    devices = jax.devices()
    found: dict[str, Any] = {"platform": devices[0].platform, "kind": devices[0].device_kind, "devices": len(devices)}
    found |= {"jax": jax.__version__, "backend": devices[0].client.platform_version.partition("\n")[0]}
    if memory := describe_memory(devices[0]):
        found["memory_gib"] = round(memory.limit / 2**30, 1)
    if is_accelerated() and (gpus := describe_gpus()):
        found["gpus"] = gpus
    return found


def device_rows(
    network: str, training: Measured, rates: Mapping[str, float], flop: tuple[float, float], watch: Watch
) -> list[Row]:
    """Rows about a network's training on an accelerator; each is printed. None are made for a CPU.

    Args:
      network: its name.
      training: what was measured.
      rates: steps per second of `learner`, `inference` and `end_to_end`.
      flop: operations per step, of acting and of learning.
      watch: which sampled the GPUs meanwhile.
    """
    rows: list[Row] = []
    act, learn = flop
    kind = jax.devices()[0].device_kind
    peak = vendor_peak(kind, training.dtype) if is_accelerated() else None
    if peak:
        peak *= training.devices
        parts = {"learner": learn, "inference": act, "end_to_end": act + learn}
        for name, operations in parts.items():
            share = round(100 * rates[name] * operations / peak, 2)
            sizes = {"vendor": f"{peak / 1e12:,.0f} TFLOP/s", "dtype": training.dtype, "device": kind}
            rows.append(say(Row(f"policy.share_of_vendor_peak.{name}.{network}", share, "%", sizes)))
    if needed := training.update_memory():
        memory = describe_memory(jax.devices()[0])
        sizes = {"limit": f"{memory.limit / 2**30:,.1f} GiB"} if memory else {}
        rows.append(say(Row(f"policy.update_memory.{network}", round(needed / 2**30, 3), "GiB", sizes)))
    for name in rates:
        rows += usage_rows(f"policy.{name}.{network}", watch.usage(f"{name}.{network}"))
    return rows


def usage_rows(name: str, usage: Usage | None) -> list[Row]:
    """How busy the GPUs were while `name` ran; no row where that was not sampled."""
    if usage is None:
        return []
    sizes = {"power_w": round(usage.power_w), "memory_mib": round(usage.memory_mib), "samples": usage.samples}
    return [say(Row(f"gpu_busy.{name}", round(usage.busy, 1), "% of the time", sizes))]
