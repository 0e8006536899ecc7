"""Samples the GPUs' utilisation, memory and power while something is measured, where `nvidia-smi` is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np

EVERY_MS = 200
FIGURES = ("utilization.gpu", "memory.used", "power.draw")  # in %, MiB and W
Result = TypeVar("Result")


class Usage(NamedTuple):
    """How the GPUs were used while something ran; means over samples and GPUs."""

    busy: float  # % of the time in which at least one kernel ran
    memory_mib: float  # the most of any sample; JAX takes most of the memory when it starts
    power_w: float
    samples: int


class Watch:
    """Samples in the background; use as a context manager. Where there is no `nvidia-smi` it has no samples."""

    def __init__(self) -> None:
        self._samples: list[tuple[float, list[float]]] = []  # when, FIGURES
        self._runs: dict[str, list[tuple[float, float]]] = {}  # by name: from, until
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Watch:
        program = shutil.which("nvidia-smi")
        if program:
            command = [program, f"--query-gpu={','.join(FIGURES)}", "--format=csv,noheader,nounits"]
            command += ["-lms", str(EVERY_MS)]
            if visible := os.environ.get("CUDA_VISIBLE_DEVICES"):
                command += ["-i", visible]
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
            self._thread = threading.Thread(target=self._read, name="nvidia-smi", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process:
            self._process.kill()
            self._process.wait()
            self._thread.join()
            assert self._process.stdout
            self._process.stdout.close()

    def _read(self) -> None:
        assert self._process
        assert self._process.stdout
        for line in self._process.stdout:
            try:
                values = [float(text) for text in line.split(",")]
            except ValueError:  # a figure that this GPU does not report, or words about an error
                continue
            if len(values) == len(FIGURES):
                self._samples.append((time.perf_counter(), values))

    def around(self, name: str, run: Callable[[], Result]) -> Callable[[], Result]:
        """The same function; what is sampled while it runs counts for `name`."""

        def watched() -> Result:
            start = time.perf_counter()
            try:
                return run()
            finally:
                self._runs.setdefault(name, []).append((start, time.perf_counter()))

        return watched

    def usage(self, name: str) -> Usage | None:
        """How the GPUs were used in all runs of `name`; None if nothing was sampled meanwhile."""
        runs = self._runs.get(name, [])
        found = [values for when, values in self._samples if any(start <= when <= end for start, end in runs)]
        if not found:
            return None
        columns = np.array(found)
        busy, _, power = columns.mean(0).tolist()
        return Usage(busy, float(columns[:, 1].max()), power, len(found))


def describe_gpus() -> list[dict[str, Any]]:
    """Name, driver and memory of each GPU, as `nvidia-smi` reports them; empty where that is not possible."""
    names = ("name", "driver_version", "memory.total")
    command = ["nvidia-smi", f"--query-gpu={','.join(names)}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    rows = [[text.strip() for text in line.split(",")] for line in done.stdout.splitlines()]
    return [dict(zip(("name", "driver", "memory"), row, strict=True)) for row in rows if len(row) == len(names)]
