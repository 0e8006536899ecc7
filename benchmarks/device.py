"""The device that JAX computes on: what it is, one large matrix product on it, and how busy a GPU is meanwhile."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh

from benchmarks.rows import Rows
from motif_jax.devices.mesh import AXES, describe_memory
from motif_jax.structs import UserError

MATRIX = 2048  # rows and columns on a CPU
LARGE_MATRIX = 8192  # on an accelerator
EVERY_MS = 200  # between two samples of a GPU


def is_accelerated() -> bool:
    """Whether JAX computes on something else than a CPU."""
    return jax.default_backend() != "cpu"


def matrix_size() -> int:
    """Rows and columns of `matrix_product`: large enough for the device."""
    return LARGE_MATRIX if is_accelerated() else MATRIX


def matrix_product(dtype: str = "float32") -> float:
    """GFLOP/s of a large matrix product: what this machine can do at best."""
    size = matrix_size()
    a = jnp.ones((size, size), dtype)
    product = jax.jit(lambda a: a @ a)
    product(a).block_until_ready()
    start = time.perf_counter()
    for _ in range(5):
        product(a).block_until_ready()
    return 5 * 2 * size**3 / (time.perf_counter() - start) / 1e9


def find_cpu() -> Any:
    """JAX's device for the processor."""
    try:
        return jax.devices("cpu")[0]
    except RuntimeError:
        raise UserError(
            "results are compared with the CPU's, and operations are counted there, but JAX may not use the CPU here: "
            "set the variable JAX_PLATFORMS=cuda,cpu (--parts)"
        ) from None


def mesh_of(device: Any) -> Mesh:
    """One device, for programs that are made for several."""
    return jax.make_mesh((1, 1, 1), AXES, (AxisType.Auto,) * 3, devices=[device])


def count_flops(function: Callable[..., Any], *arguments: Any) -> float:
    """Operations of a function as XLA counts them in its program for the CPU.

    A GPU's program calls libraries, whose operations XLA does not count.
    """
    shapes = jax.tree.map(lambda array: jax.ShapeDtypeStruct(array.shape, array.dtype), arguments)
    with jax.default_device(find_cpu()):
        return (jax.jit(function).lower(*shapes).compile().cost_analysis() or {})["flops"]


def describe_device() -> dict[str, Any]:
    """Kind and number of JAX's devices, versions, and the GPUs as the driver describes them."""
    devices = jax.devices()
    found: dict[str, Any] = {"platform": devices[0].platform, "kind": devices[0].device_kind, "devices": len(devices)}
    found |= {"jax": jax.__version__, "backend": devices[0].client.platform_version.partition("\n")[0]}
    if memory := describe_memory(devices[0]):
        found["memory_gib"] = round(memory.limit / 2**30, 1)
    if is_accelerated() and (gpus := describe_gpus()):
        found["gpus"] = gpus
    return found


def describe_gpus() -> list[dict[str, str]]:
    """Name, driver and memory of each GPU, as `nvidia-smi` reports them; empty where that is not possible."""
    command = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    rows = [[text.strip() for text in line.split(",")] for line in done.stdout.splitlines()]
    return [dict(zip(("name", "driver", "memory"), row, strict=True)) for row in rows if len(row) == 3]


@contextlib.contextmanager
def gpu_busy(rows: Rows, name: str) -> Iterator[None]:
    """Adds the row `gpu_busy.NAME` about the work inside this context; no row where there is no `nvidia-smi`.

    Utilisation is the share of the time in which at least one kernel ran, the mean of samples and GPUs; memory is the
    most of any sample, of which JAX takes most when it starts.
    """
    program = shutil.which("nvidia-smi")
    if not program:
        yield
        return
    command = [program, "--query-gpu=utilization.gpu,memory.used,power.draw", "--format=csv,noheader,nounits"]
    command += ["-lms", str(EVERY_MS)]
    if visible := os.environ.get("CUDA_VISIBLE_DEVICES"):
        command += ["-i", visible]
    with tempfile.TemporaryFile("w+") as lines:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=lines, stderr=subprocess.DEVNULL)
        try:
            yield
        finally:
            process.kill()
            process.wait()
        lines.seek(0)
        samples = [line.split(",") for line in lines if re.fullmatch(r"[\d.]+, [\d.]+, [\d.]+\n", line)]
    if samples:  # other lines: a figure that this GPU does not report, or an error
        busy, memory, power = np.array(samples, float).T
        sizes = {"power_w": round(power.mean()), "memory_mib": round(memory.max()), "samples": len(samples)}
        rows.add(f"gpu_busy.{name}", float(busy.mean()), "% of the time", 1, **sizes)
